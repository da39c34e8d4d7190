// What depends on what, drawn: boxes by kind from left to right, lines between them. A click on a box makes it the focus, its plus follows
// it further. One stop for Tab; arrows go from box to box, Enter focuses, e follows.
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { kindWords, type Graph, type GraphNode } from '../base/fabric';
import { clip, count } from '../base/format';
import { useWidth } from '../base/hooks';
import { edgePath, kBox, layGraph, nodeBeside, type PlacedEdge } from '../base/graph_layout';

interface Props {
  graph: Graph;
  focus: string;
  canOpen: (node: GraphNode) => boolean;
  isBad: (edge: PlacedEdge['edge']) => boolean;  // a port of it is in trouble
  onFocus: (id: string) => void;
  onOpen: (id: string) => void;
}

const kColumnMost = 12;
const kNameShown = 24;

// The job stands in the first column already; nobody knows a GPU by its UUID.
function label(node: GraphNode, jobs: number, hosts: ReadonlyMap<string, string>): string {
  if (node.kind === 'rank' && jobs <= 1) return `rank ${node.name.slice(node.name.lastIndexOf('/') + 1)}`;
  const host = hosts.get(node.id);
  return clip(node.kind === 'gpu' && host ? `${host} ${node.name.replace(/^GPU-/, '').slice(0, 8)}` : node.name, kNameShown);
}

// GPU -> its host, where that is in the picture.
function hostsOf(graph: Graph): Map<string, string> {
  const names = new Map(graph.nodes.filter((node) => node.kind === 'host').map((node) => [node.id, node.name]));
  return new Map(graph.edges.flatMap(({ from, to, kind }): [string, string][] => (kind === 'member-of' && names.has(to) ? [[from, names.get(to)!]] : [])));
}

export function DependencyGraph({ graph, focus, canOpen, isBad, onFocus, onOpen }: Props) {
  const [whole, setWhole] = useState<ReadonlySet<string>>(new Set());
  const [pointed, setPointed] = useState('');
  const [stop, setStop] = useState('');
  const buttons = useRef(new Map<string, HTMLButtonElement>());
  const [box, room] = useWidth();
  const picture = useMemo(() => layGraph(graph, kColumnMost, whole, room), [graph, whole, room]);
  const hosts = useMemo(() => hostsOf(graph), [graph]);
  const at = picture.nodes.find(({ node }) => node.id === focus)?.x ?? 0;
  // The focus is in sight where not all is.
  useLayoutEffect(() => { if (box.current) box.current.scrollLeft = at - (room - picture.boxWidth) / 2; }, [at, room]);
  const jobs = graph.nodes.filter((node) => node.kind === 'job').length;
  const longest = Math.max(0, ...graph.edges.map((edge) => (edge.kind === 'waits-for' ? edge.weight : 0)));
  const current = picture.nodes.some(({ node }) => node.id === stop) ? stop : focus;
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const node = graph.nodes.find((one) => one.id === current);
    const next = nodeBeside(picture, current, event.key);
    if (next) {
      setStop(next);
      buttons.current.get(next)?.focus();
    } else if (event.key === 'e' && node && canOpen(node)) {
      onOpen(node.id);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };
  const isNear = ({ from, to }: PlacedEdge): boolean => pointed !== '' && (from.node.id === pointed || to.node.id === pointed);
  const tone = (placed: PlacedEdge): string => {
    const ill = placed.from.node.trouble !== '' && placed.to.node.trouble !== '';
    return `edge edge-${placed.edge.kind}${ill ? ' ill' : ''}${isBad(placed.edge) ? ' bad' : ''}${isNear(placed) ? ' near' : ''}`;
  };
  return (
    <div class="scroll" role="region" aria-label="Dependency graph" tabIndex={-1} ref={box}>
      <div class="graph" role="group" aria-label="What depends on what. Arrows go from box to box, Enter focuses on one, e follows it further."
           style={{ width: `${picture.width}px`, height: `${picture.height}px` }} onKeyDown={onKeyDown}>
        <svg width={picture.width} height={picture.height} aria-hidden="true">
          <marker id="awaited" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto-start-reverse"><path class="arrow" d="M0 0L8 4L0 8z" /></marker>
          {picture.edges.map((placed, index) => (
            <path key={index} class={tone(placed)} d={edgePath(placed, picture.boxWidth)} {...waitLook(placed, longest)}><title>{edgeWords(placed)}</title></path>
          ))}
        </svg>
        {picture.columns.map((column) => (
          <div key={column.key} class="graph-head muted" style={{ left: `${column.x}px`, width: `${picture.boxWidth}px` }}>{column.key}</div>
        ))}
        {picture.nodes.map(({ node, x, y }) => (
          <div key={node.id} class={`graph-node${node.id === focus ? ' focus' : ''}${node.trouble ? ' ill' : ''}`}
               style={{ left: `${x}px`, top: `${y}px`, width: `${picture.boxWidth}px`, height: `${kBox.height}px` }}
               onPointerEnter={() => setPointed(node.id)} onPointerLeave={() => setPointed('')}>
            <button type="button" class="plain" title={nodeWords(node)} aria-current={node.id === focus ? 'true' : undefined}
                    tabIndex={node.id === current ? 0 : -1} ref={(element) => { if (element) buttons.current.set(node.id, element); else buttons.current.delete(node.id); }}
                    onFocus={() => { setStop(node.id); setPointed(node.id); }} onBlur={() => setPointed('')} onClick={() => onFocus(node.id)}>
              {node.trouble && <span aria-hidden="true">▲ </span>}{node.kind !== 'rank' && <span class="offscreen">{node.kind} </span>}{label(node, jobs, hosts)}
            </button>
            {canOpen(node) && (
              <button type="button" class="plain more" tabIndex={-1} title={`Follow ${node.name} further (e)`} aria-label={`Follow ${node.name} further`} onClick={() => onOpen(node.id)}>+</button>
            )}
          </div>
        ))}
        {picture.columns.map((column) => column.shown < column.total && (
          <button key={column.key} type="button" class="plain graph-more" style={{ left: `${column.x}px`, top: `${kBox.top + column.shown * (kBox.height + kBox.gapY)}px`, width: `${picture.boxWidth}px` }}
                  onClick={() => setWhole(new Set([...whole, column.key]))}>{count(column.total - column.shown)} more</button>
        ))}
      </div>
    </div>
  );
}

// Who is waited for is where the arrow leads; the longer the wait, the thicker.
function waitLook({ edge }: PlacedEdge, longest: number): object {
  return edge.kind === 'waits-for' ? { 'marker-end': 'url(#awaited)', style: { strokeWidth: `${1 + 2.5 * edge.weight / Math.max(longest, 1e-9)}px` } } : {};
}

function nodeWords(node: GraphNode): string {
  const left = node.leftOut > 0 ? `; ${count(node.leftOut)} more neighbours are not shown` : '';
  return `${node.kind} ${node.name}${node.trouble ? `: ${node.trouble}` : ''}${left}`;
}

function edgeWords({ edge, from, to }: PlacedEdge): string {
  return [`${from.node.name} ${kindWords(edge)} ${to.node.name}`, edge.kind !== 'waits-for' && edge.weight > 1 ? `× ${count(edge.weight)}` : '', edge.label, edge.known && `by ${edge.known}`].filter(Boolean).join(', ');
}
