"""The machine code of scripts/check-cuda: check_sass.py CUOBJDUMP OBJECT.

Each kernel must keep, in the machine code of every architecture:
  - no instruction loads or stores local memory;
  - a multiprocessor has registers for all threads of __launch_bounds__; no instruction names one beyond its thread's;
  - warpgroups that trade registers (setmaxnreg) ask for no more than the block began with;
  - its products are of the promised kind and no other; its copies of weights are those of the TMA unit.
"""

import collections
import concurrent.futures
import dataclasses
import fnmatch
import functools
import pathlib
import re
import subprocess
import sys

# Of a multiprocessor: its quarters have a fourth of warps and registers each, and a thread's
# registers come in steps of 8.
REGISTERS, REGISTER_STEP, GROUP_THREADS = 65536, 8, 4 * 32

SOURCES = pathlib.Path(__file__).resolve().parent.parent / "src"
ENUMS = {
    "RecordKind": "kernels/args/matrix.h",
    "InputKind": "kernels/args/matrix.h",
    "Operand": "kernels/cuda/common/tile_layout.h",
    "Epilogue": "kernels/cuda/sm90/prefill/launch.cuh",
    "Reach": "kernels/cuda/portable/linear/tiles.cuh",
}
WARPGROUP_PRODUCTS = {  # by Operand
    "bf16": "HGMMA.64x*x16.F32.BF16",
    "int8": "IGMMA.64x*x32.S8.S8",
    "e4m3": "QGMMA.64x*x32.F32.E4M3.E4M3",
}
WARP_PRODUCT = "HMMA.16816.F32.BF16"
WARP_KERNELS = ("gemm", "multiply_tiles", "attend_sections", "attend_splits", "attend_tiles",
                "attend_latents", "multiply_expert_tiles")
GROUP_KERNELS = {  # of bf16: further instructions
    "multiply_products": ("UTMALDG.*", "USETMAXREG.DEALLOC*", "USETMAXREG.TRY_ALLOC*"),
    "attend_products": ("LDGSTS.*", "USETMAXREG.DEALLOC*", "USETMAXREG.TRY_ALLOC*"),
}
TF32_PRODUCT = "HMMA.1688.F32.TF32"
TF32_KERNELS = ("router_products", "form_chunks", "walk_chunks", "absorb_keys<true>", "project_values<true>")
F16_KINDS, F16_PRODUCT = ("mxfp4_row",), "HMMA.16816.F32"  # RecordForm::nibbles

FUNCTION = re.compile(r"\s*Function : (\S+)")
INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(@!?\w+ )?\s*([A-Z][\w.]*)([^;]*);")
REGISTER = re.compile(r"\bR(\d+)")
INFO = re.compile(r"\.nv\.info\.(\S+)|\s*Attribute:\s*(\w+)|\s*Value:\s*(.*)")


@dataclasses.dataclass
class Kernel:
    registers: int = 0  # of a thread at the start
    threads: int = 0  # of a block at most
    opcodes: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    highest: int = -1  # register that is named
    producer_highest: int = -1  # the same from DEALLOC to EXIT, between which ptxas lays what the producer does
    taken: int = 0  # registers of a thread behind setmaxnreg.inc
    left: int = 0  # and behind setmaxnreg.dec


def read_resources(lines, kernels):
    """From what `cuobjdump -elf` prints."""
    name = attribute = ""
    for line in lines:
        if not (found := INFO.match(line)):
            continue
        name, attribute, value = found[1] or name, found[2] or attribute, found[3] or ""
        if count := re.fullmatch(r"function: (\S+)\(\w+\)\s+register count: (\d+)", value):
            kernels[count[1]].registers = int(count[2])
        elif value and attribute == "EIATTR_MAX_THREADS":
            x, y, z = (int(size, 16) for size in value.split())
            kernels[name].threads = x * y * z


def read_code(lines, kernels):
    """From what `cuobjdump -sass` prints."""
    kernel, producing = None, False
    for line in lines:
        if found := FUNCTION.match(line):
            kernel, producing = kernels[found[1]], False
        elif found := INSTRUCTION.match(line):
            predicate, opcode, operands = found.groups()
            kernel.opcodes[opcode] += 1
            named = [int(number) for number in REGISTER.findall(operands)]
            if width := re.match(r"\w+GMMA\.64x(\d+)x", opcode):  # the first of its sums is named, one for two columns
                named.append(named[0] + int(width[1]) // 2 - 1)
            kernel.highest = max([kernel.highest, *named])
            if opcode.startswith("USETMAXREG.DEALLOC"):
                kernel.left, producing = int(operands.split()[-1], 16), True
            elif opcode.startswith("USETMAXREG"):
                kernel.taken = int(operands.split()[-1], 16)
            elif producing:
                kernel.producer_highest = max([kernel.producer_highest, *named])
                producing = opcode != "EXIT" or predicate is not None


def read_enum(name, text):
    body = re.search(rf"enum class {name}\b[^{{]*{{([^}}]*)}}", re.sub(r"//[^\n]*", "", text))[1]
    assert "=" not in body, f"{name} numbers its values"
    return [entry.strip() for entry in body.split(",")]


def readable(name, enums):
    """A demangled name without our namespaces, values of `enums` by their names."""
    for enum, values in enums.items():
        name = re.sub(rf"\((?:\w+::)*{enum}\)(\d+)", lambda found: f"{enum}::{values[int(found[1])]}", name)
    return re.sub(r"moracle::|cuda::|\(anonymous namespace\)::|^void ", "", name)


def promise_of(name, architecture):
    """All products, and further instructions that there are. Kernels not named here have no product."""
    kernel = re.match(r"\w+", name)[0]
    if (reach := re.search(r"Reach::(\w+)", name)) and (reach[1] == "sm90") != (architecture == "sm_90a"):
        return None, ()
    if kernel == "grouped_gemm":
        operand = re.search(r"Operand::(\w+)", name)[1]
        return WARPGROUP_PRODUCTS[operand], ("UTMALDG.*", "USETMAXREG.DEALLOC*", "USETMAXREG.TRY_ALLOC*")
    if kernel == "stream_experts":
        kind = re.search(r"RecordKind::(\w+)", name)[1]
        return F16_PRODUCT if kind in F16_KINDS else WARP_PRODUCT, ("UBLKCP.S.G",)
    if kernel in GROUP_KERNELS:
        return WARPGROUP_PRODUCTS["bf16"], GROUP_KERNELS[kernel]
    if name.startswith(TF32_KERNELS):
        return TF32_PRODUCT, ()
    return (WARP_PRODUCT if kernel in WARP_KERNELS else None), ()


def is_product(opcode):
    return opcode.split(".")[0].endswith("MMA")  # HFMA2.MMA is none


def faults_of(kernel, product, needs):
    if local := [opcode for opcode in kernel.opcodes if opcode.split(".")[0] in ("LDL", "STL")]:
        yield f"{sum(kernel.opcodes[opcode] for opcode in local)} x {', '.join(local)}: wanted nothing in local memory"
    for opcode, count in kernel.opcodes.items():
        if is_product(opcode) and not fnmatch.fnmatchcase(opcode, product or ""):
            yield f"{count} x {opcode}: wanted {product or 'no product'}"
    for needed in (product or "*", *needs):
        if not fnmatch.filter(kernel.opcodes, needed):
            yield f"no instruction {needed}"
    if kernel.registers == 0 or kernel.threads == 0:
        yield f"{kernel.registers} registers, {kernel.threads} threads in the object, wanted both (__launch_bounds__)"
        return
    start = -(-kernel.registers // REGISTER_STEP) * REGISTER_STEP
    groups = -(-kernel.threads // GROUP_THREADS)
    if groups * GROUP_THREADS * start > REGISTERS:
        yield f"{kernel.threads} threads of {kernel.registers} registers, a multiprocessor has {REGISTERS}"
    # The first of 2 or 4 registers is named. It is a multiple of their number and limits are of 8, so none lies across.
    for highest, limit in ((kernel.highest, kernel.taken or start), (kernel.producer_highest, kernel.left or start)):
        if highest >= limit:
            yield f"R{highest} is named, a thread has {limit} registers"
    if kernel.left + (groups - 1) * kernel.taken > groups * start:
        yield f"{groups} warpgroups of {start} registers: one keeps {kernel.left}, the others ask for {kernel.taken}"


def output_of(*command):
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for last in process.stdout:
            yield last
    if process.returncode != 0:
        sys.exit(f"check_sass: {' '.join(command)}: {last.strip()}")


def check(cuobjdump, file, architecture, enums):
    kernels = collections.defaultdict(Kernel)
    read_resources(output_of(cuobjdump, "-elf", "-arch", architecture, file), kernels)
    read_code(output_of(cuobjdump, "-sass", "-arch", architecture, file), kernels)
    names = subprocess.run(["c++filt"], input="\n".join(kernels), stdout=subprocess.PIPE, text=True, check=True).stdout
    faults = [] if kernels else [f"{file}: no kernel"]
    products = collections.Counter()
    for kernel, name in zip(kernels.values(), (readable(name, enums) for name in names.splitlines())):
        faults += [f"{name}: {fault}" for fault in faults_of(kernel, *promise_of(name, architecture))]
        products.update({opcode.split(".")[0] for opcode in kernel.opcodes if is_product(opcode)})
    print("\n".join(f"check_sass: {architecture}: {fault}" for fault in faults), end="\n" if faults else "",
          file=sys.stderr)
    if not faults:
        instructions = sum(kernel.opcodes.total() for kernel in kernels.values())
        counts = ", ".join(f"{product} in {count}" for product, count in sorted(products.items()))
        print(f"check_sass: {architecture}: {len(kernels)} kernels of {instructions} instructions: no local memory, "
              f"registers within bounds, products as promised ({counts})")
    return not faults


def main(cuobjdump, file):
    enums = {name: read_enum(name, (SOURCES / path).read_text()) for name, path in ENUMS.items()}
    listed = set(re.findall(r"\.(sm_\w+)\.cubin", "".join(output_of(cuobjdump, "-lelf", file))))
    listed = {name for name in listed if int(re.search(r"\d+", name)[0]) >= 80}  # the runtime has code of its own
    if not listed:
        sys.exit(f"check_sass: {file}: no machine code")
    with concurrent.futures.ProcessPoolExecutor() as pool:
        kept = list(pool.map(functools.partial(check, cuobjdump, file, enums=enums), sorted(listed)))
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
