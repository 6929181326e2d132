"""Which engines a row of bench/cells is held against, and how far it is ahead."""
PUBLISHED_IN_8_BITS = ("int8-w8a8",)  # activations, so that an engine that rounds to 8 bits does what the scheme says


def comparable(row):
    """Peers whose activations are no coarser than the row's policy, or its scheme, allows; the order stays."""
    coarse = row["policy"] == "fast" or row.get("scheme") in PUBLISHED_IN_8_BITS
    return [peer for peer in row["peers"] if coarse or peer["numerics"] == "exact"]


def ahead(row, other, figure="median_us"):
    """The median ratio of neighbouring runs, in results without pairs the ratio of figures; above 1 we are faster."""
    if figure in other.get("ratio", {}):
        return other["ratio"][figure]
    ratio = other[figure] / row["ours"][figure]
    return 1 / ratio if figure.endswith("_tok_s") else ratio
