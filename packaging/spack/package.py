"""PeelReduce for Spack 1.0 and newer: a folder `peelreduce` with this file, in a repository of packages
(`spack create --help`)."""

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator

from spack.package import *


class Peelreduce(CMakePackage):
    """Lossless all-reduce of sparse gradients: the C++ library and the program peel."""

    homepage = "https://github.com/peelreduce/peelreduce"
    git = "https://github.com/peelreduce/peelreduce.git"

    maintainers("peelreduce")
    license("Apache-2.0", checked_by="peelreduce")

    version("main", branch="main")

    variant("mpi", default=True, description="The transport over MPI")
    variant("cuda", default=False, description="The codec on NVIDIA GPUs")
    variant("nccl", default=False, when="+cuda", description="The transport over NCCL")
    variant("xdp", default=False, description="The plane of the switch in the kernel")
    variant("shared", default=False, description="Shared libraries")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("cli11")
    depends_on("fmt")
    depends_on("highway")
    depends_on("nlohmann-json")
    depends_on("xxhash")
    depends_on("mpi", when="+mpi")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl", when="+nccl")
    depends_on("libbpf@1:", when="+xdp")
    depends_on("bpftool", type="build", when="+xdp")
    depends_on("llvm +clang", type="build", when="+xdp")

    generator("ninja")

    def cmake_args(self):
        names = {"mpi": "PEEL_MPI", "cuda": "PEEL_CUDA", "nccl": "PEEL_NCCL", "xdp": "PEEL_XDP", "shared": "BUILD_SHARED_LIBS"}
        args = [self.define_from_variant(option, variant) for variant, option in names.items()]
        return [*args, self.define("PEEL_BUILD_TESTS", False)]

    def test_doctor(self):
        """the installed program finds nothing wrong with itself"""
        which(self.prefix.bin.peel)("doctor")
