#!/usr/bin/env python3
"""Runs the programs of a file on the GPU. Says where the results are not those
in the file, or with --write makes a file that holds the GPU's results."""

import argparse
import base64
import gzip
import json
import multiprocessing
import sys
import zlib

import gpu

PATIENCE = 30  # seconds until a program is taken to hang


def results(program, inputs, level):
    """The CRC-32 of what each block wrote."""
    blocks = program["grid"][0] * program["grid"][1] * program["grid"][2]
    data = b"".join(inputs[name] for name in program["inputs"])
    out = gpu.run(program["source"], program["grid"], program["block"], data, program["size"], level=level, maps=program.get("maps", ()))
    part = program["size"] // blocks
    return [zlib.crc32(out[i * part:(i + 1) * part]) for i in range(blocks)]


def attempt(task):
    """What each block wrote, the fault that ended the program instead, or why there is neither."""
    program, inputs, level = task
    try:
        return results(program, inputs, level), "", ""
    except gpu.Refused as problem:
        return [], "", str(problem)
    except RuntimeError as problem:
        fault = str(problem).split(": ")[-1]
        return ([], fault, "") if fault.startswith("CUDA_ERROR_") else ([], "", str(problem))


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("file", help="programs.json.gz, forms.json.gz or one like them")
    arguments.add_argument("--write", metavar="FILE", help="where to write the programs with the GPU's results")
    arguments.add_argument("--level", type=int, default=4, help="how much the driver's compiler optimises, 0 to 4")
    options = arguments.parse_args()
    with gzip.open(options.file) as f:
        content = json.load(f)
    inputs = {name: base64.b64decode(text) for name, text in content["inputs"].items()}
    tasks = [(p, {name: inputs[name] for name in p["inputs"]}, options.level) for p in content["programs"]]
    wrong = 0
    # After the fault of a copy of a tensor nothing works any more in its process.
    each = 1 if any("maps" in p for p in content["programs"]) else None
    with multiprocessing.Pool(initializer=gpu.open_gpu, maxtasksperchild=each) as pool:
        outcomes = [pool.apply_async(attempt, (task,)) for task in tasks]
        for program, outcome in zip(content["programs"], outcomes):
            try:
                got, fault, problem = outcome.get(timeout=PATIENCE)
            except multiprocessing.TimeoutError:
                got, fault, problem = [], "", "does not end"
            expected = program["crc32"], program.pop("fault", "")
            if problem or not options.write and (got, fault) != expected:
                wrong += 1
                print("%s: %s" % (program["name"], problem or "got %s %s, the file says %s %s" % (got, fault, *expected)))
            program["crc32"] = got
            if fault:
                program["fault"] = fault
    if options.write:
        content["programs"] = [p for p in content["programs"] if p["crc32"] or "fault" in p]
        with open(options.write, "wb") as f:
            # Without a name and a time in it, the same content is the same bytes.
            f.write(gzip.compress(json.dumps(content, indent=0).encode(), 9, mtime=0))
    print("%d programs, %d wrong" % (len(tasks), wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
