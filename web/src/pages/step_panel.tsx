// One step: who was slow in it. The numbers are those of the heat map.
import { count, duration, excess } from '../base/format';
import { cell, kParts, type StepMatrix } from '../base/matrix';
import type { JobPlace } from '../base/url';
import { Facts, Panel } from './panel';

interface Props {
  place: JobPlace;
  step: number;
  matrix: StepMatrix | null;
  onRank: (rank: number) => void;
  onClose: () => void;
}

const kShown = 12;

export function StepPanel({ step, matrix, onRank, onClose }: Props) {
  const column = matrix ? matrix.steps.indexOf(step) : -1;
  return (
    <Panel title={`Step ${count(step)}`} onClose={onClose}>
      {!matrix || column < 0
        ? <p class="muted">Step {count(step)} is not among the steps shown. Ask for more with “last”.</p>
        : <Content {...{ matrix, column, onRank }} />}
    </Panel>
  );
}

function Content({ matrix, column, onRank }: { matrix: StepMatrix; column: number; onRank: (rank: number) => void }) {
  const heard = matrix.ranks.flatMap((rank, row) => {
    const over = cell(matrix.excess, matrix, row, column);
    return over === null ? [] : [{ rank, host: matrix.hosts[row]!, over }];
  }).sort((a, b) => b.over - a.over);
  const silent = matrix.ranks.length - heard.length;
  return (
    <>
      <Facts rows={[['median step', duration(matrix.stepMs[column])], ...kParts.map((part): [string, string] => [part, duration(matrix.parts[part][column])])]} />
      <h3>Slowest ranks in this step</h3>
      <table class="facts">
        <tbody>
          {heard.slice(0, kShown).map((row) => (
            <tr key={row.rank}>
              <th scope="row"><button type="button" class="plain" onClick={() => onRank(row.rank)}>rank {count(row.rank)}</button></th>
              <td>{row.host}</td>
              <td class="number">{excess(row.over)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="muted">
        {count(Math.min(kShown, heard.length))} of {count(matrix.ranks.length)} ranks, slowest first
        {silent > 0 && `; nothing heard of ${count(silent)}`}
      </p>
    </>
  );
}
