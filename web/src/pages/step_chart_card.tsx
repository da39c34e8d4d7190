// The timeline with its legend, its buttons and its table twin.
import type { Signal } from '@preact/signals';
import { paths } from '../base/api';
import { count, duration } from '../base/format';
import type { StepAnalysis } from '../base/step';
import { kKinds, kWaiting, timeByKind, type Line, type Timeline } from '../base/timeline';
import { copy, csv, curl, download } from '../base/share';
import { go, type StepPlace } from '../base/url';
import { fineDuration, isWhole, pan, zoom, type View } from '../base/view';
import { Menu } from '../widgets/menu';
import { RanksField } from '../widgets/ranks_field';
import { Table, type Column } from '../widgets/table';
import { TimelineView } from '../widgets/timeline';
import { stepCommand } from './step_answer';

interface Props {
  place: StepPlace;
  tile: Timeline;
  overview: Timeline;
  view: View;
  length: number;
  analysis: StepAnalysis | null;
  room: Signal<{ columns: number; lines: number }>;
  showPath: Signal<boolean>;
  move: (view: View) => void;
  pick: (rank: number | null) => void;
  hostOf: (rank: number) => string;
  commName: (comm: string) => string;
}

const kLineMost = 16;
// The frame, the answer, the chart's head, axis and hint.
const kAroundChart = 408;

// As many pixels as the window leaves the chart.
export function chartLines(): number {
  return Math.max(240, Math.min(720, window.innerHeight - kAroundChart));
}

export function StepChartCard({ place, tile, overview, view, length, analysis, room, showPath, move, pick, hostOf, commName }: Props) {
  const height = Math.max(48, Math.min(chartLines(), tile.lines.length * kLineMost));
  const path = analysis?.path ?? [];
  const asTable = place.view === 'table';
  const together = Math.max(...tile.lines.map((line) => line.last - line.first + 1));
  const address = paths.timeline(place.job, place.step, { from: place.from, to: place.to, ranks: place.ranks, ...room.value });
  return (
    <section class="card charts" aria-label="Timeline">
      <div class="chart-head">
        <h2>What did every rank do, and when?</h2>
        <KindLegend tile={tile} />
        <Menu label="Menu of the timeline" items={[
          { label: 'Copy as curl', run: () => copy(curl(address)) },
          { label: 'Copy as CLI', run: () => copy(stepCommand(place)) },
          { label: 'Download CSV', run: () => download(`${place.job}-step-${place.step}.csv`, kindsCsv(tile, hostOf)) },
          { label: asTable ? 'Show as chart (t)' : 'Show as table (t)', run: () => go({ ...place, view: asTable ? 'chart' : 'table' }, true) },
        ]} />
      </div>
      <div class="chart-head second">
        <div class="controls">
          <button type="button" onClick={() => move(zoom(view, (view.from + view.to) / 2, 0.5, length))} title="Zoom in (w)">zoom in</button>
          <button type="button" disabled={isWhole(view, length)} onClick={() => move(zoom(view, (view.from + view.to) / 2, 2, length))} title="Zoom out (s)">zoom out</button>
          <button type="button" disabled={view.from <= 0} onClick={() => move(pan(view, -0.5, length))} title="Earlier (a)">‹ earlier</button>
          <button type="button" disabled={view.to >= length} onClick={() => move(pan(view, 0.5, length))} title="Later (d)">later ›</button>
          <button type="button" disabled={isWhole(view, length)} onClick={() => move({ from: 0, to: length })} title="The whole step (0)">whole step</button>
        </div>
        <RanksField ranks={place.ranks} onRanks={(ranks) => go({ ...place, ranks })} />
        {path.length > 0 && (
          <label class="check">
            <input type="checkbox" checked={showPath.value} onChange={() => { showPath.value = !showPath.value; }} />
            <span class="swatch-line" aria-hidden="true" />critical path
          </label>
        )}
        <span class="muted">
          {isWhole(view, length) ? 'whole step' : `${fineDuration(view.to - view.from)} of it, from ${fineDuration(view.from)}`}
          {' · '}{together > 1
            ? `${count(tile.ranksShown)} ranks, each line = ${count(together)} of them: the one that waits least is shown`
            : `${count(tile.ranksShown)} ranks, a line each`}
        </span>
      </div>
      {asTable
        ? <KindTable {...{ place, tile, hostOf, pick }} />
        : (
          <>
            <TimelineView {...{ overview, tile, view, length, height, hostOf, commName }} path={showPath.value ? path : kNoPath} selected={place.rank}
                          culprit={analysis?.culprit ?? null} onView={move} onPick={pick}
                          onColumns={(columns) => { if (columns !== room.value.columns) room.value = { columns, lines: chartLines() }; }} />
            <p class="hint muted">
              <span class="keys">
                <kbd>wheel</kbd> <kbd>w</kbd> <kbd>s</kbd> zoom <kbd>drag</kbd> zoom into <kbd>Shift drag</kbd> <kbd>a</kbd> <kbd>d</kbd> pan
                <kbd>double click</kbd> <kbd>0</kbd> whole <kbd>click</kbd> rank <kbd>Esc</kbd> up <kbd>t</kbd> table
              </span>
            </p>
          </>
        )}
    </section>
  );
}

const kNoPath: StepAnalysis['path'] = [];

// Only what occurs in the picture; words beside every colour.
function KindLegend({ tile }: { tile: Timeline }) {
  const seen = new Set<number>();
  for (const line of tile.lines) for (const kind of line.cells) seen.add(kind);
  return (
    <ul class="legend">
      {kKinds.map((kind, index) => seen.has(index) && (
        <li key={kind.letter}>
          <span class={`swatch ${kind.family === 'none' ? 'hatched' : ''}${index === kWaiting ? 'striped' : ''}`} aria-hidden="true"
                style={kind.family === 'none' ? undefined : { backgroundColor: `var(--${kind.token})` }} />
          {kind.word}
        </li>
      ))}
    </ul>
  );
}

interface TableProps {
  place: StepPlace;
  tile: Timeline;
  hostOf: (rank: number) => string;
  pick: (rank: number) => void;
}

// The twin of the picture: how long each line is in each kind, of what is in view.
function KindTable({ tile, hostOf, pick }: TableProps) {
  const rows = tile.lines.map((line) => ({ line, sums: timeByKind(tile, line) }));
  const shown = kKinds.map((_, kind) => kind).filter((kind) => rows.some((row) => row.sums[kind]! > 0));
  const own = (sums: number[]): number => sums.reduce((sum, ns, kind) => sum + (kKinds[kind]!.family === 'own' ? ns : 0), 0);
  rows.sort((a, b) => own(b.sums) - own(a.sums));
  const columns: Column<{ line: Line; sums: number[] }>[] = [
    { head: 'rank', numeric: true, cell: ({ line }) => <button type="button" class="plain" onClick={() => pick(line.shown)}>{count(line.shown)}</button> },
    ...(tile.ranksShown > tile.lines.length
      ? [{ head: 'for ranks', cell: ({ line }: { line: Line }) => `${count(line.first)}–${count(line.last)}` }] : []),
    { head: 'host', cell: ({ line }) => hostOf(line.shown) || '–' },
    { head: 'own work in all', numeric: true, cell: ({ sums }) => duration(own(sums) / 1e6) },
    ...[kWaiting, ...shown.filter((kind) => kind !== kWaiting)].map((kind): Column<{ line: Line; sums: number[] }> => (
      { head: kKinds[kind]!.word.split(',')[0]!, numeric: true, cell: ({ sums }) => duration(sums[kind]! / 1e6) })),
  ];
  return (
    <Table caption="Time by kind" what={tile.ranksShown > tile.lines.length ? 'lines' : 'ranks'} sorted="most own work first" columns={columns} rows={rows}
           total={tile.lines.length} rowKey={({ line }) => line.first} />
  );
}

function kindsCsv(tile: Timeline, hostOf: (rank: number) => string): string {
  return csv(['rank', 'first_rank', 'last_rank', 'host', ...kKinds.map((kind) => `${kind.word.split(/[, ]/)[0]}_ms`)],
    tile.lines.map((line) => [line.shown, line.first, line.last, hostOf(line.shown), ...timeByKind(tile, line).map((ns) => ns / 1e6)]));
}
