"""Numbers of the SPEED-Bench paper (arXiv 2604.09557) that ours are set beside.

Categories and tiers have our names; what the paper does not tell is not here. This module imports
nothing of ours.
"""

ISL = {
    "coding": (218.4, 146.5),
    "humanities": (99.3, 51.0),
    "math": (130.5, 98.5),
    "qa": (11.1, 11.0),
    "rag": (805.7, 667.0),
    "reasoning": (163.8, 88.5),
    "stem": (114.5, 74.0),
    "writing": (619.3, 337.5),
    "multilingual": (160.4, 130.5),
    "summarization": (581.1, 387.5),
    "roleplay": (464.4, 215.0),
}
"""Table 3: mean and median ISL by category, in tokens of o200k_base summed over a row's user turns,
without a chat template. (The paper does not say so; on Spec-Bench's own rows this rule, and no
other that we tried, gives the numbers that Table 3 has for them, nine of eleven to the digit.)"""

ISL_OVERALL = (406.0, 141.0)
"""Table 3: macro mean over categories, and median over all rows."""

ROWS_PER_CATEGORY = 80
ROWS = 880
MULTITURN = {
    "coding": 9,
    "humanities": 8,
    "math": 18,
    "qa": 0,
    "rag": 15,
    "reasoning": 62,
    "stem": 6,
    "writing": 4,
    "multilingual": 0,
    "summarization": 0,
    "roleplay": 45,
}
"""Rows flagged multi-turn in the published file, 167 in all (18 rows of two turns are not)."""

MOST_TURNS = 5
LANGUAGES = 23
SOURCES_QUALITATIVE = 18

ROWS_BY_SOURCE = {
    "spec_bench": 201,
    "hle": 208,
    "human_eval_pack": 61,
    "live_code_bench": 5,
    "code_contests": 5,
    "role_bench": 56,
    "coser": 14,
    "writing_bench": 66,
    "creative_writing": 10,
    "mt_bench_101": 58,
    "mmlu_pro": 18,
    "mmath": 45,
    "opus_100": 33,
    "mcif": 3,
    "chat_rag_bench": 17,
    "cnn_dailymail": 80,
}
"""Rows of the published qualitative split by our source's name."""

SIMILARITY = {
    "writing": (0.29, 0.18, 0.18),
    "humanities": (0.14, 0.12, 0.11),
    "rag": (0.17, 0.13, 0.13),
    "roleplay": (0.25, 0.24, 0.24),
}
"""Table 8: mean pairwise similarity of a random choice, of greedy + swaps, and of the QP
relaxation, with the paper's own embedder."""

SIMILARITY_OVERALL = (0.14, 0.22)
"""Table 2: mean pairwise similarity of the paper's selection and of Spec-Bench's rows."""

RELATIVE_RANGE = {
    "roleplay": (22.7, 0.6),
    "multilingual": (14.6, 5.1),
    "rag": (12.1, 0.9),
    "humanities": (9.2, 3.0),
    "writing": (7.2, 0.9),
    "stem": (6.5, 2.8),
    "math": (5.6, 1.6),
    "summarization": (4.4, 2.0),
    "coding": (4.0, 0.7),
    "reasoning": (3.9, 2.7),
    "qa": (2.2, 2.6),
}
"""Table 6: relative range of AL in percent over ten uniform and ten optimised subsets
(Llama-3.3-70B, EAGLE3, draft length 7)."""
