"""What vendors say that their devices can do at most: the only figures that a rejection rests on.

All rates are of dense matrices. Sources: NVIDIA's data sheets of the data-centre devices ("NVIDIA H200
Tensor Core GPU", "H100", "GH200 Grace Hopper Superchip", "A100 80GB", "A10", "L4", "L40S", "T4", "V100", "HGX
B200"), and the architecture whitepapers of the GeForce cards (GA102, Ada, RTX Blackwell).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

#: Nobody is rejected for less than this share above the data sheet.
HEADROOM = 1.05
#: GeForce cards run above their data sheet's clock (an RTX 4090: 2.52 GHz there, 2.8 GHz in use) and are
#: sold overclocked.
GEFORCE_HEADROOM = 1.25

#: 16-bit products whose sum has the accuracy of one f32 product: each factor is split in two, and the
#: product of the small parts is left out (Ootomo and Yokota, "Recovering single precision accuracy from
#: Tensor Cores while surpassing the FP32 theoretical peak performance", 2022). A single TF32 product fails
#: f32's tolerance; three of them take twice as long as three 16-bit products.
HALF_PRODUCTS_OF_F32 = 3
#: 8-bit products from which an f64 product can be put together; published kernels need 14 to 16 (Ozaki,
#: Uchino and Imamura, "Ozaki Scheme II", 2025).
BYTE_PRODUCTS_OF_F64 = 12

MIB = 2**20


class Datasheet(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one device.

    Attributes:
        name: as torch gives it.
        bandwidth_gbps: of its memory, 1e9 bytes a second.
        l2_bytes: of its last cache.
        matmul_tflops: by short dtype name the rate of a dense product on the fastest path that has the
            accuracy of that dtype, 1e12 a second.
        headroom: factor by which a device may exceed these figures.
    """

    name: str
    bandwidth_gbps: float
    l2_bytes: int
    matmul_tflops: dict[str, float]
    headroom: float = HEADROOM


class _Row(NamedTuple):
    """Figures as they are printed.

    Attributes:
        gbps: of the memory.
        l2_mib: of the L2 cache, as devices report it where that is more than is printed.
        half: 16-bit products on tensor cores, TFLOPS, with whichever accumulator is faster.
        single: f32 without tensor cores.
        double: f64, on tensor cores if they do it.
        byte: 8-bit products on tensor cores, TOPS.
    """

    gbps: float
    l2_mib: int
    half: float
    single: float
    double: float
    byte: float


# The dies of H200 and GH200 have 60 MiB, all of which an H200 reports.
_H200 = _Row(4800, 60, 989.4, 67, 67, 1979)
_H200_NVL = _Row(4800, 60, 835.5, 60, 60, 1671)
_H100_SXM = _Row(3350, 50, 989.4, 67, 67, 1979)
_H100_NVL = _Row(3938, 60, 835.5, 60, 60, 1671)
_H100_PCIE = _Row(2039, 50, 756, 51, 51, 1513)
_GH200_HBM3 = _Row(4022, 60, 989.4, 67, 67, 1979)
_GH200_HBM3E = _Row(4900, 60, 989.4, 67, 67, 1979)
_A100_80 = _Row(2039, 40, 312, 19.5, 19.5, 624)
_A100_80_PCIE = _Row(1935, 40, 312, 19.5, 19.5, 624)
_A100_40 = _Row(1555, 40, 312, 19.5, 19.5, 624)
_V100 = _Row(900, 6, 125, 15.7, 7.8, 62.8)

_ROWS: dict[str, _Row] = {
    "NVIDIA B200": _Row(8000, 128, 2250, 80, 40, 4500),
    "NVIDIA H200": _H200,
    "NVIDIA H200 NVL": _H200_NVL,
    "NVIDIA H100 80GB HBM3": _H100_SXM,
    "NVIDIA H100 PCIe": _H100_PCIE,
    "NVIDIA H100 NVL": _H100_NVL,
    "NVIDIA GH200 480GB": _GH200_HBM3,
    "NVIDIA GH200 144G HBM3e": _GH200_HBM3E,
    "NVIDIA A100-SXM4-80GB": _A100_80,
    "NVIDIA A100-SXM4-40GB": _A100_40,
    "NVIDIA A100 80GB PCIe": _A100_80_PCIE,
    "NVIDIA A100-PCIE-40GB": _A100_40,
    "NVIDIA A10": _Row(600, 6, 125, 31.2, 0.98, 250),
    "NVIDIA L4": _Row(300, 48, 121, 30.3, 0.49, 242.5),
    "NVIDIA L40S": _Row(864, 96, 366.4, 91.6, 1.43, 733),
    "Tesla T4": _Row(320, 4, 65, 8.1, 0.25, 130),
    "Tesla V100-SXM2-16GB": _V100,
    "Tesla V100-SXM2-32GB": _V100,
    "Tesla V100-PCIE-16GB": _V100,
    "Tesla V100-PCIE-32GB": _V100,
    "NVIDIA GeForce RTX 3090": _Row(936, 6, 142, 35.6, 0.56, 284),
    "NVIDIA GeForce RTX 4090": _Row(1008, 72, 330.3, 82.6, 1.29, 660.6),
    "NVIDIA GeForce RTX 5090": _Row(1792, 96, 419, 104.8, 1.64, 838),
}


def datasheet_of(device_name: str) -> Datasheet | None:
    """The data sheet of a device, or None if it is not in the table.

    Args:
        device_name: as ``torch.cuda.get_device_name`` gives it. A slice of a device (``... MIG 1g.10gb``)
            has the limits of the whole.
    """
    name = device_name.partition(" MIG ")[0]
    # Older drivers leave the vendor out or put another word before it.
    row = _ROWS.get(name) or _ROWS.get(f"NVIDIA {name}")
    if row is None:
        return None
    return Datasheet(
        name=device_name,
        bandwidth_gbps=row.gbps,
        l2_bytes=row.l2_mib * MIB,
        # f16 and bf16 count alike, though some cards add f16 faster.
        matmul_tflops={
            "f16": row.half,
            "bf16": row.half,
            "f32": max(row.single, row.half / HALF_PRODUCTS_OF_F32),
            "f64": max(row.double, row.byte / BYTE_PRODUCTS_OF_F64),
        },
        headroom=GEFORCE_HEADROOM if "GeForce" in name else HEADROOM,
    )
