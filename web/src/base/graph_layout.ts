// Where the parts of a dependency graph stand: a column for each kind, from jobs to spines, so that what carries a job reads from left to
// right; in a column the ill first, then by their neighbours to the left, so that few lines cross. What has no room is counted.
import type { Graph, GraphEdge, GraphNode } from './fabric';

export interface PlacedNode {
  node: GraphNode;
  column: number;
  x: number;
  y: number;
}

export interface PlacedEdge {
  edge: GraphEdge;
  from: PlacedNode;
  to: PlacedNode;
}

export interface GraphColumn {
  key: string;
  x: number;
  shown: number;
  total: number;
}

export interface GraphPicture {
  columns: GraphColumn[];
  nodes: PlacedNode[];  // column by column, from the top
  edges: PlacedEdge[];
  boxWidth: number;
  width: number;
  height: number;
}

const kColumns: [key: string, kinds: string[]][] = [
  ['jobs', ['job']], ['ranks', ['rank']], ['GPUs', ['gpu']], ['hosts', ['host', 'nvlink', 'pcie']], ['adapters', ['nic']], ['leaves', ['leaf', 'link']],
  ['spines', ['spine', 'switch']], ['storage', ['storage']], ['versions', ['version']],
];
export const kBox = { height: 26, gapY: 6, top: 28 };
const kWidth = { least: 148, most: 208, gapLeast: 36, gapMost: 96 };

// The ill, the focus, what the reader asked for, the rest.
const rankOf = (node: GraphNode): number => (node.trouble ? 0 : node.depth === 0 ? 1 : node.isFollowed ? 2 : 3);

// most: boxes of a column, beside what the reader asked for; a column in `whole` has all of its own. room: pixels of width there are; columns never come closer than reads well.
export function layGraph(graph: Graph, most: number, whole: ReadonlySet<string>, room: number): GraphPicture {
  const neighbours = new Map<string, string[]>();
  for (const { from, to } of graph.edges) {
    for (const [one, other] of [[from, to], [to, from]] as const) {
      const held = neighbours.get(one);
      if (held) held.push(other);
      else neighbours.set(one, [other]);
    }
  }
  const known = new Set(kColumns.flatMap(([, kinds]) => kinds));
  const groups = [...kColumns.map(([key, kinds]) => ({ key, members: graph.nodes.filter((node) => kinds.includes(node.kind)) })),
    { key: 'other', members: graph.nodes.filter((node) => !known.has(node.kind)) }].filter(({ members }) => members.length > 0);
  const each = room / Math.max(1, groups.length);
  const boxWidth = Math.floor(Math.max(kWidth.least, Math.min(kWidth.most, each * 0.8)));
  const gap = Math.floor(Math.max(kWidth.gapLeast, Math.min(kWidth.gapMost, (room - groups.length * boxWidth) / Math.max(1, groups.length - 1))));
  const placed = new Map<string, PlacedNode>();
  const columns: GraphColumn[] = [];
  let rows = 0;
  for (const { key, members } of groups) {
    // The mean place of those to the left; who has none there keeps the server's order, behind.
    const pull = (node: GraphNode): number => {
      const to = (neighbours.get(node.id) ?? []).flatMap((id) => placed.get(id) ?? []);
      return to.length === 0 ? Infinity : to.reduce((sum, one) => sum + one.y, 0) / to.length;
    };
    const ordered = members.map((node, index) => ({ node, index, pull: pull(node) }))
      .sort((a, b) => rankOf(a.node) - rankOf(b.node)
        || (a.pull === b.pull ? 0 : a.pull - b.pull) || a.index - b.index);
    const shown = whole.has(key) ? ordered : ordered.slice(0, most + members.filter((node) => node.isFollowed).length);
    const [column, x] = [columns.length, columns.length * (boxWidth + gap)];
    columns.push({ key, x, shown: shown.length, total: members.length });
    shown.forEach(({ node }, row) => placed.set(node.id, { node, column, x, y: kBox.top + row * (kBox.height + kBox.gapY) }));
    rows = Math.max(rows, shown.length + (shown.length < members.length ? 1 : 0));
  }
  return {
    columns,
    nodes: [...placed.values()],
    edges: graph.edges.flatMap((edge): PlacedEdge[] => {
      const [from, to] = [placed.get(edge.from), placed.get(edge.to)];
      return from && to ? [{ edge, from, to }] : [];
    }),
    boxWidth,
    width: Math.max(0, columns.length * (boxWidth + gap) - gap),
    height: kBox.top + rows * (kBox.height + kBox.gapY),
  };
}

const kWithin = 30;

// A curve from the right side of the left box to the left side of the right one; within a column around its right side.
export function edgePath({ from, to }: PlacedEdge, boxWidth: number): string {
  const [left, right] = from.x <= to.x ? [from, to] : [to, from];
  const [y0, y1] = [left.y + kBox.height / 2, right.y + kBox.height / 2];
  const x0 = left.x + boxWidth;
  if (left.x === right.x) return `M${x0} ${y0}C${x0 + kWithin} ${y0} ${x0 + kWithin} ${y1} ${x0} ${y1}`;
  const bend = (right.x - x0) / 2;
  return `M${x0} ${y0}C${x0 + bend} ${y0} ${right.x - bend} ${y1} ${right.x} ${y1}`;
}

// Whoever an arrow key leads to: within the column, or the nearest of the column beside.
export function nodeBeside(picture: GraphPicture, id: string, key: string): string | null {
  const at = picture.nodes.find(({ node }) => node.id === id);
  if (!at) return null;
  const down = key === 'ArrowDown' ? 1 : key === 'ArrowUp' ? -1 : 0;
  const right = key === 'ArrowRight' ? 1 : key === 'ArrowLeft' ? -1 : 0;
  if (down === 0 && right === 0) return null;
  const column = picture.nodes.filter((one) => one.column === at.column + right);
  if (down !== 0) return column[column.indexOf(at) + down]?.node.id ?? null;
  const joined = new Set(picture.edges.flatMap(({ from, to }) => (from === at ? [to] : to === at ? [from] : [])));
  const near = [...column].sort((a, b) => Number(joined.has(b)) - Number(joined.has(a)) || Math.abs(a.y - at.y) - Math.abs(b.y - at.y));
  return near[0]?.node.id ?? null;
}
