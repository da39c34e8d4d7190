// The picture of a kernel profile with its legend, its buttons and its table twin.
import type { Signal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { paths } from '../base/api';
import { clip, count } from '../base/format';
import { shortKernel } from '../base/kernel_profile';
import { classToken, longestIn, type KernelTimeline, type Slice } from '../base/kernel_timeline';
import { analyzeCommand, copy, csv, curl, download } from '../base/share';
import { go, type ProfilePlace } from '../base/url';
import { fineDuration, isWhole, pan, zoom, type View } from '../base/view';
import { KernelTimelineView } from '../widgets/kernel_timeline';
import { Loading } from '../widgets/loading';
import { Menu } from '../widgets/menu';
import { RanksField } from '../widgets/ranks_field';
import { Table } from '../widgets/table';
import type { ProfileData } from './profile_data';

interface Props {
  place: ProfilePlace;
  data: ProfileData;
  view: View | null;
  length: number;
  open: ReadonlySet<number>;
  culprits: readonly number[];
  rank: number | null;
  columns: Signal<number>;
  hostOf: (rank: number) => string;
  move: (view: View) => void;
  toggle: (rank: number) => void;
  pickKernel: (kernel: string, rank?: number | null) => void;
}

const kKernelShown = 32;
// An answer for a few pixels more or less is as good.
const isOther = (a: number, b: number): boolean => Math.abs(a - b) > 0.15 * b;
// The frame, the answer, the chart's head and hint.
const kAroundChart = 440;
const kBesideChart = 194;
const kTwinRows = 200;

export function ProfileChart(props: Props) {
  const { place, data, view, length, open, culprits, rank, columns, hostOf, move, toggle, pickKernel } = props;
  const { value: overview } = data.overview;
  const { value: tile } = data.tile;
  const room = Math.max(240, Math.min(720, window.innerHeight - kAroundChart));
  const strong = useMemo(() => new Set([...culprits, ...(rank === null ? [] : [rank])]), [culprits, rank]);
  const asTable = place.view === 'table';
  const address = paths.profileTimeline(place.job, place.capture, { from: place.from, to: place.to, ranks: place.ranks, width: columns.value || 1_200 });
  if (columns.value === 0) columns.value = Math.max(64, Math.min(2_048, document.documentElement.clientWidth - kBesideChart));
  if (!overview || !tile || !view) {
    return (
      <section class="card charts" style={{ minHeight: `${room / 2}px` }} aria-label="Timeline">
        {data.noPicture.value ? <p role="alert">No timeline: {data.noPicture.value}</p> : <Loading what="the timeline" />}
      </section>
    );
  }
  const middle = (view.from + view.to) / 2;
  const whole = isWhole(view, length);
  return (
    <section class="card charts" aria-label="Timeline">
      <div class="chart-head">
        <h2>Which kernel ran when, on which rank?</h2>
        <ClassLegend overview={overview} tile={tile} />
        <Menu label="Menu of the timeline" items={[
          { label: 'Copy as curl', run: () => copy(curl(address)) },
          { label: 'Copy as CLI', run: () => copy(analyzeCommand(place.job, place.capture)) },
          { label: 'Download CSV', run: () => download(`${place.job}-${place.capture}.csv`, slicesCsv(longestIn(tile, view, 10_000))) },
          { label: asTable ? 'Show as chart (t)' : 'Show as table (t)', run: () => go({ ...place, view: asTable ? 'chart' : 'table' }, true) },
        ]} />
      </div>
      <div class="chart-head second">
        <div class="controls">
          <button type="button" onClick={() => move(zoom(view, middle, 0.5, length))} title="Zoom in (w)">zoom in</button>
          <button type="button" disabled={whole} onClick={() => move(zoom(view, middle, 2, length))} title="Zoom out (s)">zoom out</button>
          <button type="button" disabled={view.from <= 0} onClick={() => move(pan(view, -0.5, length))} title="Earlier (a)">‹ earlier</button>
          <button type="button" disabled={view.to >= length} onClick={() => move(pan(view, 0.5, length))} title="Later (d)">later ›</button>
          <button type="button" disabled={whole} onClick={() => move({ from: 0, to: length })} title="All of it (0)">all</button>
        </div>
        <RanksField ranks={place.ranks} onRanks={(ranks) => go({ ...place, ranks })} />
        <span class="muted">
          {whole ? `all ${fineDuration(length)}` : `${fineDuration(view.to - view.from)} from ${fineDuration(view.from)} on`}
          {' · '}{count(overview.ranks.length)} {overview.ranks.length === 1 ? 'rank' : 'ranks'}
          {place.kernel && <> · marked: <b title={place.kernel}>{clip(shortKernel(place.kernel), kKernelShown)}</b></>}
        </span>
      </div>
      {tile.truncated && <p class="muted" role="status">More than one answer holds: the rest of the ranks is left out. Fewer ranks or a nearer view shows all.</p>}
      {data.noPicture.value && <p role="alert">Not as near as asked for: {data.noPicture.value}</p>}
      {asTable
        ? <SliceTable {...{ tile, view, place, pickKernel }} />
        : (
          <>
            <KernelTimelineView {...{ overview, tile, view, length, room, open, strong, hostOf }} kernel={place.kernel} onView={move} onOpen={toggle}
                                onKernel={(name, of) => pickKernel(name, of)} onColumns={(wanted) => { if (isOther(wanted, columns.value)) columns.value = wanted; }} />
            <p class="hint muted">
              <span class="keys">
                <kbd>wheel</kbd> <kbd>w</kbd> <kbd>s</kbd> zoom <kbd>drag</kbd> zoom into <kbd>Shift drag</kbd> <kbd>a</kbd> <kbd>d</kbd> pan
                <kbd>0</kbd> all <kbd>click</kbd> kernel, or rank for its streams <kbd>↑</kbd> <kbd>↓</kbd> row <kbd>,</kbd> <kbd>.</kbd> kernels <kbd>t</kbd> table <kbd>Esc</kbd> up
              </span>
            </p>
          </>
        )}
    </section>
  );
}

// Only what occurs; words beside every colour.
function ClassLegend({ overview, tile }: { overview: KernelTimeline; tile: KernelTimeline }) {
  const seen = new Set([...overview.used, ...tile.used]);
  const words = [...new Set([...overview.classes, ...tile.classes])].filter((word) => seen.has(word));
  return (
    <ul class="legend">
      {words.map((word) => <li key={word}><span class="swatch" aria-hidden="true" style={{ backgroundColor: `var(--${classToken(word)})` }} />{word}</li>)}
    </ul>
  );
}

interface TwinProps {
  tile: KernelTimeline;
  view: View;
  place: ProfilePlace;
  pickKernel: Props['pickKernel'];
}

// The twin of the picture: what lasts longest of what is in view.
function SliceTable({ tile, view, place, pickKernel }: TwinProps) {
  const rows = useMemo(() => longestIn(tile, view, kTwinRows), [tile, view]);
  return (
    <Table caption="Slices in view" what="slices" sorted="longest first" rows={rows} total={rows.length} rowKey={(slice) => `${slice.rank}/${slice.lane}/${slice.from}/${slice.name}`}
           chosen={(slice) => slice.name === place.kernel} columns={[
             { head: 'rank', numeric: true, cell: (slice: Slice) => count(slice.rank) },
             { head: 'lane', cell: (slice) => slice.lane },
             { head: 'name', cell: (slice) => <button type="button" class="plain" title={slice.name} aria-pressed={slice.name === place.kernel} onClick={() => pickKernel(slice.name, slice.rank)}>{shortKernel(slice.name)}</button> },
             { head: 'class', cell: (slice) => slice.kernelClass },
             { head: 'from', numeric: true, cell: (slice) => fineDuration(slice.from) },
             { head: 'lasts', numeric: true, cell: (slice) => fineDuration(slice.to - slice.from) },
             { head: 'slices', numeric: true, cell: (slice) => count(slice.count) },
           ]} />
  );
}

function slicesCsv(slices: readonly Slice[]): string {
  return csv(['rank', 'lane', 'name', 'class', 'from_us', 'duration_us', 'count'],
    slices.map((slice) => [slice.rank, slice.lane, slice.name, slice.kernelClass, slice.from / 1e3, (slice.to - slice.from) / 1e3, slice.count]));
}
