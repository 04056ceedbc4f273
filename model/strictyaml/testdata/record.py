"""Write pyyaml.json: random documents, and what PyYAML reads in each.

    python3 record.py > pyyaml.json

The parser must read the same, or refuse the document. Trees are written as in
the test: strings, null, lists, and a mapping as {"keys": [...], "values": [...]}.
A document that PyYAML refuses has no tree.
"""
import json
import random

import yaml

WORDS = ["a", "b", "1", "x y", "null", "~", "n[1]", "é", "http://h:1", "-1", ":9", "a#b", '"q"', "'it''s'", '"\\x41\\n"', '"q\\n  r"', "'s\n\n  t'", '"u \\\n  v"']
MARKS = [" ", "\n", "\n", "\n  ", "\n    ", ": ", "- ", "- - ", "[", "]", "{", "}", ", ", " # c\n", "[1, 2]", "{a: 1}", "{a: 1,\n b: 2}", "a: ", "b:", "\n- ", "\n  - ", "---\n"]


def tree(node):
    if isinstance(node, yaml.ScalarNode):
        if node.style is None and node.value in ("", "null", "Null", "NULL", "~"):
            return None
        return node.value
    if isinstance(node, yaml.SequenceNode):
        return [tree(n) for n in node.value]
    return {"keys": [tree(k) for k, _ in node.value], "values": [tree(v) for _, v in node.value]}


def read(text):
    try:
        documents = [tree(n) for n in yaml.compose_all(text, Loader=yaml.BaseLoader) if n is not None]
    except yaml.YAMLError:
        return {"text": text}
    return {"text": text, "trees": documents}


random.seed(1)
texts = {}
while len(texts) < 20000:
    texts["".join(random.choice(random.choice([WORDS, MARKS])) for _ in range(random.randint(2, 14)))] = True
found = [read(text) for text in texts]
nested = [r for r in found if r.get("trees") and any(len(json.dumps(t)) > 30 and not isinstance(t, str) for t in r["trees"])]
refused = [r for r in found if "trees" not in r]
print("[")
print(",\n".join(json.dumps(r, ensure_ascii=False) for r in nested[:350] + refused[:100]))
print("]")
