"""The papers' numbers, digit for digit, and what the pure-noise model takes for each table.

ICLR: Andrew et al., "One-shot empirical privacy estimation for federated learning" (ICLR 2024). v1: its first version.
"""

from coalmine.papers.one_shot.modelled import PrintedTable
from coalmine.papers.one_shot.noise_model import PureNoiseRun

SIMULATIONS = 50  # or runs, behind every mean that the papers print
STACK_OVERFLOW_DELTA = 341_000**-1.1
EMNIST_DELTA = 3383**-1.1
_STACK_OVERFLOW = PureNoiseRun(noise=1.0, dim=4_050_748, rounds=2048, canaries=1000)
_ICLR = {"lo-all": "lo-all", "est-all": "est-all", "lo-final": "lo-final", "est-final": "est-final"}
_V1 = {**_ICLR, "est-all": "v1-est-all", "est-final": "v1-est-final"}

TABLE1 = {  # noise multiplier -> mean ± standard deviation by dimension
    0.541: {10_000: "9.89 ± 0.71", 100_000: "10.1 ± 0.41", 1_000_000: "10.0 ± 0.23", 10_000_000: "10.0 ± 0.10"},
    1.54: {10_000: "3.00 ± 0.46", 100_000: "3.00 ± 0.31", 1_000_000: "2.96 ± 0.15", 10_000_000: "3.00 ± 0.08"},
    4.22: {10_000: "0.98 ± 0.41", 100_000: "1.05 ± 0.23", 1_000_000: "0.99 ± 0.14", 10_000_000: "1.00 ± 0.07"},
}
TABLE2 = PrintedTable(
    "table 2",
    STACK_OVERFLOW_DELTA,
    _STACK_OVERFLOW,
    {
        0.0: ("inf", "6.240", "45800", "2.88", "4.60"),
        0.0496: ("300", "6.238", "382", "1.11", "1.97"),
        0.0986: ("100", "5.05", "89.4", "0.688", "1.18"),
        0.2317: ("30", "0.407", "2.693", "0.311", "0.569"),
    },
    _ICLR,
)
TABLE5 = PrintedTable(
    "table 5",
    EMNIST_DELTA,
    PureNoiseRun(noise=1.0, dim=1_206_590, rounds=498, canaries=1000),
    {
        0.0: ("inf", "6.25", "48300", "3.86", "5.72"),
        0.16: ("33.8", "2.87", "17.9", "1.01", "1.20"),
        0.18: ("28.1", "2.32", "12.0", "0.788", "1.15"),
        0.195: ("24.8", "2.02", "8.88", "0.723", "1.08"),
        0.25: ("16.9", "0.896", "3.86", "0.550", "0.818"),
        0.315: ("12.0", "0.315", "1.50", "0.216", "0.737"),
    },
    _ICLR,
)
V1_TABLE3 = (
    PrintedTable(  # Table 3 of the first version; its Table 2 has the accuracies, which the ICLR paper prints again as Table 3
        "v1, epsilons by noise",
        STACK_OVERFLOW_DELTA,
        _STACK_OVERFLOW,
        {
            0.0: ("inf", "6.24", "46400", "3.91", "5.49"),
            0.0644: ("194", "6.15", "266", "1.26", "1.74"),
            0.1023: ("93.8", "4.93", "84.0", "1.01", "1.22"),
            0.1836: ("40.2", "1.34", "7.60", "0.802", "0.865"),
            0.2344: ("28.9", "0.271", "2.41", "0.478", "0.675"),
        },
        _V1,
    )
)
V1_TABLE1 = {4.22: "0.972 ± 0.148", 1.54: "3.04 ± 0.137", 0.541: "9.98 ± 0.190"}  # d = 10^6, k = 10^3, delta = 10^-6
TABLE3 = {
    0.0: ("25.3", "25.3"),
    0.064: ("24.0", "23.9"),
    0.102: ("23.1", "23.1"),
    0.184: ("21.5", "21.5"),
    0.234: ("20.6", "20.5"),
}
TABLE4 = {
    0.0: {1: "0.464", 2: "0.590", 3: "0.396", 5: "0.407", 10: "0.196"},
    0.1023: {1: "0.976", 2: "0.422", 3: "0.340", 5: "0.432", 10: "0.116"},
    0.2344: {1: "0.326", 2: "0.157", 3: "0.347", 5: "0.951", 10: "0.401"},
}
TABLE6 = {"canife": "0.88 ± 0.12", "lo": "1.82 ± 0.46", "est": "6.8 ± 1.1", "analytic": "34.5"}
