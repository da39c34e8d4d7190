"""bench/results/promql.md, one section per command."""
HEAD = """# PromQL

Written by `./dev test promql`; what evaluation costs: `promql_bench`, by `./dev bench`.
"""


def replace_section(path, title, text):
    old = path.read_text() if path.exists() else HEAD
    parts = old.split("\n## ")
    head, sections = parts[0], parts[1:]
    kept = [s for s in sections if not s.startswith(title + "\n")]
    kept.append(f"{title}\n\n{text.strip()}\n")
    kept.sort()
    path.write_text(head.rstrip() + "\n" + "".join("\n## " + s.strip() + "\n" for s in kept))
