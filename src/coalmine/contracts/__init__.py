"""The plain data types and protocols that packages share, so that packages need not import each other.

statements    what may be said: `Claim`, `LowerBound`, `PointEstimate`, `Verdict`
conformance   does the code do what was claimed: `Conformance`
description   what a mechanism says of itself: `Description`
observed      one round as any trainer saw it: `Observed`
ranking       how well scores tell who took part: `Ranking`
protocols     `Mechanism`, `Participation`, `Canaries`, `Null` and what they exchange
serial        statements as plain data, and back
"""

from coalmine.contracts.arrays import (
    Array,
    IndexArray,
    State,
    Streams,
    Vector,
)
from coalmine.contracts.conformance import (
    Conformance,
    Finding,
    NotTested,
    Side,
)
from coalmine.contracts.description import (
    AtLeast,
    ByClients,
    ByServer,
    Clip,
    Constraint,
    Description,
    Explicit,
    Extra,
    Fresh,
    Isotropic,
    Noise,
    Opaque,
    PerPeriod,
    ProtectedExamples,
    Separation,
    Strategy,
    known_part,
    read_description,
)
from coalmine.contracts.observed import (
    AimedRound,
    Compared,
    Glance,
    LowRank,
    Observed,
    Projections,
    Redrawn,
    RoundCanaries,
    Sample,
)
from coalmine.contracts.protocols import (
    Canaries,
    Context,
    Contribution,
    InTurns,
    Mechanism,
    Null,
    Participation,
    Public,
    Release,
    Sampling,
    ServerOptimiser,
    Total,
)
from coalmine.contracts.ranking import (
    Ranking,
)
from coalmine.contracts.serial import (
    from_plain,
    plain,
)
from coalmine.contracts.statements import (
    Attendance,
    Caveat,
    Claim,
    Game,
    LowerBound,
    PointEstimate,
    Power,
    Verdict,
    Word,
)
from coalmine.rounding import percent

__all__ = [
    "AimedRound",
    "Array",
    "AtLeast",
    "Attendance",
    "ByClients",
    "ByServer",
    "Canaries",
    "Caveat",
    "Claim",
    "Clip",
    "Compared",
    "Conformance",
    "Constraint",
    "Context",
    "Contribution",
    "Description",
    "Explicit",
    "Extra",
    "Finding",
    "Fresh",
    "Game",
    "Glance",
    "InTurns",
    "IndexArray",
    "Isotropic",
    "LowRank",
    "LowerBound",
    "Mechanism",
    "Noise",
    "NotTested",
    "Null",
    "Observed",
    "Opaque",
    "Participation",
    "PerPeriod",
    "PointEstimate",
    "Power",
    "Projections",
    "ProtectedExamples",
    "Public",
    "Ranking",
    "Redrawn",
    "Release",
    "RoundCanaries",
    "Sample",
    "Sampling",
    "Separation",
    "ServerOptimiser",
    "Side",
    "State",
    "Strategy",
    "Streams",
    "Total",
    "Vector",
    "Verdict",
    "Word",
    "from_plain",
    "known_part",
    "percent",
    "plain",
    "read_description",
]
