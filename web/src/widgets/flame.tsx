// A differential flame graph: a frame is as wide as its share of time, mean of the rank and its peers; red where the rank has more of it,
// blue where it has less, with the points of difference beside the name. A click goes into a frame, a click on one above it out again.
// One stop for Tab; arrows go to callers (up), callees (down) and neighbours, Enter goes in, Esc out.
import { useMemo, useRef, useState } from 'preact/hooks';
import { percent } from '../base/format';
import { useWidth } from '../base/hooks';
import { depthOf, layFrames, points, signedPoints, type Box, type Frame } from '../base/stacks';

interface Props {
  root: Frame;
  rank: number;
  label: string;
}

const kRow = 22;
// Differences of so much and more have the full colour.
const kFullPoints = 30;
const kWordsFrom = 28;

export function FlameGraph({ root, rank, label }: Props) {
  const [box, width] = useWidth();
  const [inside, setInside] = useState<Frame | null>(null);
  const [focused, setFocused] = useState<Frame | null>(null);
  const buttons = useRef(new Map<Frame, HTMLButtonElement>());
  const top = inside && belongs(inside, root) ? inside : root;
  const boxes = useMemo(() => layFrames(top, root), [top, root]);
  const depth = Math.max(0, ...boxes.map((one) => one.depth)) + 1;
  const current = boxes.some((one) => one.frame === focused) ? focused : boxes[0]?.frame ?? null;
  const enter = (frame: Frame): void => {
    setInside(frame === root ? null : frame);
    setFocused(frame);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (!current || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Escape' && top !== root) enter(top.parent ?? root);
    else {
      const next = step(boxes, current, event.key);
      if (!next) return;
      setFocused(next);
      buttons.current.get(next)?.focus();
    }
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="flame" ref={box} role="group" aria-label={label} style={{ height: `${depth * kRow}px` }} onKeyDown={onKeyDown}>
      {boxes.map(({ frame, depth: row, left, width: share }) => (
        <button
          key={pathOf(frame)}
          type="button"
          ref={(element) => { if (element) buttons.current.set(frame, element); else buttons.current.delete(frame); }}
          tabIndex={frame === current ? 0 : -1}
          class={`frame${row < depthOf(top) - depthOf(root) ? ' above' : ''}`}
          style={{ left: `${100 * left}%`, width: `calc(${100 * share}% - 1px)`, top: `${row * kRow}px`, backgroundColor: colour(frame) }}
          title={words(frame, rank)}
          aria-label={words(frame, rank)}
          onFocus={() => setFocused(frame)}
          onClick={() => enter(frame)}
        >
          {share * width >= kWordsFrom && <><span>{frame.name}</span>{' '}{points(frame) !== 0 && <b>{signedPoints(frame)}</b>}</>}
        </button>
      ))}
    </div>
  );
}

// Neighbours on the same level, the caller above, the widest callee below.
function step(boxes: readonly Box[], from: Frame, key: string): Frame | null {
  const at = boxes.find((one) => one.frame === from);
  if (!at) return null;
  if (key === 'ArrowUp') return boxes.find((one) => one.frame === from.parent)?.frame ?? null;
  if (key === 'ArrowDown') return boxes.filter((one) => one.frame.parent === from).sort((a, b) => b.width - a.width)[0]?.frame ?? null;
  if (key !== 'ArrowLeft' && key !== 'ArrowRight') return null;
  const level = boxes.filter((one) => one.depth === at.depth).sort((a, b) => a.left - b.left);
  return level[level.indexOf(at) + (key === 'ArrowLeft' ? -1 : 1)]?.frame ?? null;
}

function colour(frame: Frame): string {
  const difference = points(frame);
  const share = Math.min(100, Math.round((100 * Math.abs(difference)) / kFullPoints));
  return `color-mix(in srgb, var(--flame-${difference > 0 ? 'more' : 'less'}) ${share}%, var(--flame-same))`;
}

const words = (frame: Frame, rank: number): string => `${frame.name}${points(frame) === 0 ? '' : ` ${signedPoints(frame)}`}: ${percent(frame.own)} of rank ${rank}'s time, ${percent(frame.peers)} of its peers'`;

function pathOf(frame: Frame): string {
  return frame.parent ? `${pathOf(frame.parent)};${frame.name}` : frame.name;
}

function belongs(frame: Frame, root: Frame): boolean {
  for (let at: Frame | null = frame; at; at = at.parent) if (at === root) return true;
  return false;
}
