// The vertical line through all charts at the step pointed at, and the lines that mark where a verdict begins and what is selected.
import { count } from '../base/format';
import { columnX, type Axis } from '../base/plot';
import type { PointSignal } from './point';

interface Props {
  axis: Axis;
  hover: PointSignal;
  selected: number | null;
  since: readonly number[];
  labelled?: boolean;
}

export function Crosshair({ axis, hover, selected, since, labelled = false }: Props) {
  const width = Math.max(1, axis.width / axis.slots);
  const at = (step: number | null | undefined): number => (step === null || step === undefined ? -1 : axis.steps.indexOf(step));
  const line = (column: number, name: string, x: number, size: number) =>
    column < 0 ? null : <div class={name} style={{ left: `${x}px`, width: `${size}px` }} />;
  const hovered = at(hover.value?.step);
  const chosen = at(selected);
  return (
    <div class="overlay" aria-hidden="true">
      {since.map((step) => at(step) >= 0 && (
        <div key={step} class="line-since" style={{ left: `${columnX(axis, at(step))}px` }}>
          {labelled && <span class={at(step) > axis.slots * 0.8 ? 'before' : undefined}>since {count(step)}</span>}
        </div>
      ))}
      {line(chosen, 'line-selected', columnX(axis, chosen), width)}
      {line(hovered, 'line-hover', columnX(axis, hovered) + width / 2, 1)}
    </div>
  );
}

export function Tip({ x, y, total, lines }: { x: number; y: number; total: number; lines: string[] }) {
  const flip = x > total / 2;
  return (
    <div class="tip" aria-hidden="true" style={flip ? { right: `${total - x + 12}px`, top: `${y}px` } : { left: `${x + 12}px`, top: `${y}px` }}>
      {lines.map((text, index) => <div key={index}>{text}</div>)}
    </div>
  );
}
