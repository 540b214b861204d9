#!/usr/bin/env python3
"""Turns a .cu file into C++ that the stand-in device runs: what no header can express becomes calls of its headers.

    kernel<T><<<grid, block, shared, stream>>>(a, b)  ->  a call of stand_in::launch
    extern __shared__ T name[];                       ->  a pointer to the memory of the launch
    __shared__ T name[n];                             ->  a static variable that each thread block finds full of garbage
    __global__ ... {                                  ->  the kernel's name is noted, for reports
    asm volatile("mov.u64 %0, %globaltimer;" ...)     ->  a look at the stand-in's clock
    __noinline__                                      ->  an attribute; as a macro it would break the standard library

Lines stay where they are, so that messages of compilers and sanitizers name the file itself.
"""

import re
import sys


def opening_of(text, end, pair):
    """Where the bracket begins that closes at `end`."""
    depth = 0
    for at in range(end, -1, -1):
        if text[at] == pair[1]:
            depth += 1
        elif text[at] == pair[0]:
            depth -= 1
            if depth == 0:
                return at
    raise SystemExit("a bracket is not closed")


def rewrite_launches(text):
    while True:
        found = re.search(r"<<<(?=[^<])", text)
        if not found:
            return text
        end = found.start()
        while text[end - 1].isspace():
            end -= 1
        begin = opening_of(text, end - 1, "<>") if text[end - 1] == ">" else end
        begin = re.search(r"[\w:]+$", text[:begin]).start()
        name = " ".join(text[begin:end].split())
        close = re.search(r">>>\s*\(", text[found.end() :])
        shape = text[found.end() : found.end() + close.start()]
        rest = found.end() + close.end()
        lines = "\n" * (text.count("\n", begin, rest) - shape.count("\n"))
        comma = "" if re.match(r"\s*\)", text[rest:]) else ", "
        call = (
            f"::stand_in::launch(::stand_in::Shape({shape}), "
            f"[=](auto... stand_in_arguments) {{ {name}(stand_in_arguments...); }}{comma}{lines}"
        )
        text = text[:begin] + call + text[rest:]


def rewrite_shared(text):
    text = re.sub(
        r"extern __shared__ (?:__align__\(\d+\) )?([\w:]+) (\w+)\[\];",
        r"\1* const \2 = static_cast<\1*>(::stand_in::dynamic_shared());",
        text,
    )
    return re.sub(
        r"\b__shared__ ([^;]*?\b(\w+)(?:\[[^;]*\])?);",
        r"static \1; { static std::uint64_t stand_in_block = 0; "
        r"::stand_in::begin_shared(&\2, sizeof(\2), stand_in_block); }",
        text,
    )


def name_kernels(text):
    out = []
    at = 0
    for found in re.finditer(r"\b__global__\b", text):
        depth = 0
        for place in range(found.end(), len(text)):
            depth += {"(": 1, ")": -1}.get(text[place], 0)
            if depth == 0 and text[place] in "{;":
                break
        if text[place] == ";":
            continue
        out.append(text[at : place + 1] + " ::stand_in::running_kernel = __PRETTY_FUNCTION__;")
        at = place + 1
    return "".join(out) + text[at:]


def without_comments(text):
    """Comments may speak of launches; strings of the device sources never hold two slashes."""
    return re.sub(r"//[^\n]*", "", text)


def main():
    source, target = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        text = without_comments(file.read())
    text = re.sub(r'asm volatile\("mov\.u64 %0, %globaltimer;" : "=l"\((\w+)\)\)',
                  r"\1 = ::stand_in::device_clock_ns()", text)
    text = re.sub(r"\b__noinline__\b", "__attribute__((noinline))", text)
    text = name_kernels(rewrite_shared(rewrite_launches(text)))
    with open(target, "w", encoding="utf-8") as file:
        file.write(f'#line 1 "{source}"\n{text}')


if __name__ == "__main__":
    main()
