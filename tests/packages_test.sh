#!/usr/bin/env bash
# The recipes of packages can be read, and name what the tree has. `make packages` builds and tries them.
set -eu
cd "${SOURCE_DIR:?SOURCE_DIR must be the root of the tree}"
scripts/packages recipes
