#!/usr/bin/env python3
"""Runs the kernels of ../instructions on the GPU and compares what they write
with what their heads say; ../README.md explains those. Kernels that must fault
are only compiled, and what a kernel prints is not compared. Kernels for other
GPUs (.target sm_100a) are left out."""

import glob
import math
import multiprocessing
import os
import re
import struct
import sys

import gpu

PATIENCE = 60  # seconds until a kernel is taken to hang
EXPONENTS = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}
TARGET = re.compile(r"^\.target sm_(\d+)(a?)", re.MULTILINE)
LAUNCH = re.compile(r"grid (\d+)(?: (\d+))?(?: (\d+))? block (\d+)(?: (\d+))?(?: (\d+))?(?: shared (\d+))?$")


def size_of(kind):
    return int(kind.lstrip("abfsu")) // 8


def bits_of(kind, text):
    if text.startswith("0x"):
        return int(text, 16)
    if kind in ("f32", "f64"):
        code = "f" if kind == "f32" else "d"
        return int.from_bytes(struct.pack("<" + code, float(text)), "little")
    return int(text) % (1 << 8 * size_of(kind))


def float_of(kind, bits):
    if kind == "bf16":
        kind, bits = "f32", bits << 16
    code = {"f16": "e", "f32": "f", "f64": "d"}[kind]
    return struct.unpack("<" + code, bits.to_bytes(size_of(kind), "little"))[0]


def ordered(kind, bits):
    """A number that counts representable values; both zeros are 0."""
    sign = 1 << 8 * size_of(kind) - 1
    return -(bits - sign) if bits & sign else bits


def is_nan(kind, bits):
    return kind in EXPONENTS and bits % (1 << 8 * size_of(kind) - 1) > EXPONENTS[kind]


def append(data, kind, value):
    size = size_of(kind)
    data += bytes(-len(data) % size)
    for text in value.split():
        data += bits_of(kind, text).to_bytes(size, "little")


class Case:
    """A file and what its head says."""

    def __init__(self, source):
        self.source = source
        self.data, self.params = bytearray(), bytearray()
        self.wanted, self.size = [], 0  # (offset, type, text, tolerance) each
        self.faults = False
        self.target = TARGET.search(source).groups()
        begun = False
        for line in source.split("\n"):
            if not line.startswith("// "):
                break
            words, _, value = line[3:].partition(": ")
            begun = begun or words == "launch"
            if begun:
                self.read(*words.partition(" ")[::2], value)

    def read(self, word, rest, value):
        if word == "launch":
            numbers = LAUNCH.match(value).groups()
            self.grid = [int(n or 1) for n in numbers[:3]]
            self.block = [int(n or 1) for n in numbers[3:6]]
            self.shared = int(numbers[6] or 0)
        elif word == "in":
            append(self.data, rest, value)
        elif word == "param":
            append(self.params, rest, value)
        elif word == "out":
            kind, _, tolerance = rest.partition(" within ")
            self.size += -self.size % size_of(kind)
            for text in value.split():
                self.wanted.append((self.size, kind, text, tolerance))
                self.size += size_of(kind)
        elif word == "faults":
            self.faults = True

    def runs_on(self, capability):
        """Code for sm_90a runs on 9.0 alone, other code on all later GPUs."""
        number, only = self.target
        return int(number) == capability if only else int(number) <= capability

    def problems(self):
        if self.faults:
            gpu.compile_only(self.source)
            return
        out = gpu.run(self.source, self.grid, self.block, bytes(self.data), self.size, self.shared, bytes(self.params))
        for i, (offset, kind, text, tolerance) in enumerate(self.wanted):
            got = int.from_bytes(out[offset:offset + size_of(kind)], "little")
            if not matches(kind, text, tolerance, got):
                yield "out[%d] is %#x, want %s" % (i, got, text)


def matches(kind, text, tolerance, got):
    if text == "nan":
        return is_nan(kind, got)
    want = bits_of(kind, text)
    if got == want or not tolerance or is_nan(kind, got) or is_nan(kind, want):
        return got == want
    ulps = re.match(r"(\d+) ulp$", tolerance)
    if ulps:
        return abs(ordered(kind, got) - ordered(kind, want)) <= int(ulps.group(1))
    power, absolute = re.match(r"2\^(\S+)( of 1)?$", tolerance).groups()
    g, w = float_of(kind, got), float_of(kind, want)
    if math.isinf(w):
        return False
    return abs(g - w) <= 2.0 ** float(power) * (1 if absolute else abs(w))


def check(file):
    """What is wrong with a kernel; None if this GPU cannot run it."""
    with open(file) as f:
        case = Case(f.read())
    if not case.runs_on(gpu.capability()):
        return None
    try:
        return list(case.problems())
    except gpu.Refused as problem:
        return ["refused: %s" % problem]
    except RuntimeError as problem:
        return [str(problem)]


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "instructions")
    files = sorted(glob.glob(os.path.join(folder, "*.ptx")))
    wrong = left_out = 0
    with multiprocessing.Pool(initializer=gpu.open_gpu) as pool:
        outcomes = pool.imap(check, files)
        for file in files:
            problems = outcomes.next(timeout=PATIENCE)
            if problems is None:
                left_out += 1
                continue
            wrong += bool(problems)
            for problem in problems:
                print("%s: %s" % (os.path.basename(file), problem))
    print("%d kernels, %d wrong, %d left out: they are for other GPUs" % (len(files), wrong, left_out))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
