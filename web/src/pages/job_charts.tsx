import type { RefObject } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { charges, notColoured } from '../base/accused';
import { paths } from '../base/api';
import { count } from '../base/format';
import type { Why } from '../base/decode';
import type { Sort, StepMatrix } from '../base/matrix';
import { copy, curl, download, whyCommand } from '../base/share';
import { go, kLastChoices, type JobPlace } from '../base/url';
import { HeatLegend, HeatMap } from '../widgets/heatmap';
import { Menu } from '../widgets/menu';
import type { Point, PointSignal } from '../widgets/point';
import { PartsLegend, StepChart } from '../widgets/step_chart';
import { cellsCsv, stepsCsv } from './job_csv';

interface Props {
  place: JobPlace;
  why: Why;
  matrix: StepMatrix;
  rows: readonly number[];
  max: number;
  culprits: ReadonlySet<number>;
  since: readonly number[];
  traced: ReadonlySet<number>;
  hover: PointSignal;
  selected: Point | null;
  pick: (rank: number | null, step: number | null) => void;
  pinned: boolean;
  onFollow: () => void;
}

export function JobCharts({ place, why, matrix, rows, max, culprits, since, traced, hover, selected, pick, pinned, onFollow }: Props) {
  const root = useRef<HTMLElement>(null);
  const height = useMapHeight(root, matrix.ranks.length, matrix.steps.length > 0);
  const charged = charges(why.verdicts);
  const path = paths.steps(place.job, place.last);
  const take = (name: string, table: () => string) => [
    { label: 'Copy as curl', run: () => copy(curl(path)) },
    { label: 'Copy as CLI', run: () => copy(whyCommand(place.job)) },
    { label: 'Download CSV', run: () => download(`${place.job}-${name}.csv`, table()) },
    { label: 'Show as table (t)', run: () => go({ ...place, view: 'table' }, true) },
  ];
  if (matrix.steps.length === 0) {
    return <section class="card"><p class="muted">No step has been heard of yet. Charts appear with the first finished step.</p></section>;
  }
  return (
    <section class="card charts" aria-label="Charts" ref={root}>
      <div class="chart-head">
        <h2>Where does the time of a step go?</h2>
        <PartsLegend why={why} traced={matrix.steps.filter((step) => traced.has(step)).length} />
        <Menu label="Menu of the step chart" items={take('steps', () => stepsCsv(matrix))} />
      </div>
      <StepChart {...{ matrix, hover, since, traced }} selected={place.step} onPick={(step) => pick(null, step)} />
      <div class="chart-head">
        <h2>Which rank is slower than its peers?</h2>
        <HeatLegend max={max} />
        <Controls place={place} matrix={matrix} />
        <Menu label="Menu of the heat map" items={take('ranks-by-step', () => cellsCsv(matrix))} />
      </div>
      <HeatMap {...{ matrix, rows, max, culprits, charged, hover, since }} height={height} worstFirst={place.sort === 'badness'} cursor={selected} onPick={pick} />
      {notColoured(charged).map((line) => <p key={line} class="hint">{line}</p>)}
      <p class="hint muted">
        {kSorted[place.sort]}{' '}
        {pinned
          ? <>Showing steps {count(matrix.steps[0])}–{count(matrix.steps[matrix.steps.length - 1])}, not the newest. <button type="button" class="plain" onClick={onFollow}>Go to the newest</button></>
          : <span class="keys"><kbd>←↑↓→</kbd> move <kbd>Enter</kbd> down <kbd>Esc</kbd> up <kbd>s</kbd> sort <kbd>t</kbd> table <kbd>p</kbd> kernels</span>}
      </p>
    </section>
  );
}

// What the order of the rows is by.
const kSorted: Record<Sort, string> = {
  badness: 'Sorted: who is named by a verdict, then most own time beyond the peers in the newest 50 steps.',
  rank: 'Sorted by rank.',
  host: 'Sorted by host, then by rank.',
};

export function Controls({ place, matrix }: { place: JobPlace; matrix: StepMatrix }) {
  const choices = [...new Set<number>([...kLastChoices, place.last])].sort((a, b) => a - b);
  return (
    <div class="controls">
      <label>sorted
        <select value={place.sort} onChange={(event) => go({ ...place, sort: event.currentTarget.value as Sort }, true)}>
          <option value="badness">worst first</option>
          <option value="rank">by rank</option>
          <option value="host">by host</option>
        </select>
      </label>
      <label>last
        <select value={String(place.last)} onChange={(event) => go({ ...place, last: Number(event.currentTarget.value) }, true)}>
          {choices.map((steps) => <option key={steps} value={String(steps)}>{count(steps)} steps</option>)}
        </select>
      </label>
      <span class="muted">
        {count(matrix.ranks.length)}{matrix.ranksTotal > matrix.ranks.length && ` of ${count(matrix.ranksTotal)}`} × {count(matrix.steps.length)}
      </span>
    </div>
  );
}

// As tall as the window leaves room for; few ranks need less. Measured when the page opens and when the window changes, not when
// a claim is unfolded: the map must not jump under the pointer.
function useMapHeight(root: RefObject<HTMLElement>, ranks: number, shown: boolean): number {
  const [room, setRoom] = useState(256);
  useEffect(() => {
    const measure = (): void => {
      const top = (root.current?.getBoundingClientRect().top ?? 0) + window.scrollY;
      setRoom(Math.max(144, Math.min(640, window.innerHeight - top - kAroundMap)));
    };
    measure();
    window.addEventListener('resize', measure);
    return () => window.removeEventListener('resize', measure);
  }, [shown]);
  return Math.max(64, Math.min(room, ranks * 16));
}

// The step chart, both heads, the step axis, the hint and the paddings.
const kAroundMap = 308;
