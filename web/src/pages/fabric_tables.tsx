// Where file and fabric differ, and what agents reported otherwise than before.
import { paths } from '../base/api';
import type { Difference, Fabric, FabricChange } from '../base/fabric';
import { clock, utc } from '../base/format';
import { affectedCommand, copy, curl } from '../base/share';
import { fabricPlace } from '../base/url';
import { PlaceLink } from '../widgets/frame';
import { Menu } from '../widgets/menu';
import { Table } from '../widgets/table';

const kWords: Record<string, string> = { other_port: 'another port', not_seen: 'declared, nobody reports it', not_declared: 'reported, not in the file' };

export function Differences({ fabric }: { fabric: Fabric }) {
  return (
    <section class="card" aria-label="Differences">
      <div class="chart-head">
        <h2>Where do file and fabric differ?</h2>
        <Menu label="Menu of the differences" items={[{ label: 'Copy as curl', run: () => copy(curl(paths.fabric())) }, { label: 'Copy as CLI', run: () => copy(affectedCommand('')) }]} />
      </div>
      <Table caption="Differences between the topology file and what is seen" what="differences" sorted="wrong cables first" rows={fabric.differences} total={fabric.differencesTotal} rowKey={(row) => `${row.kind}/${row.subject}`}
             pageRows={8} columns={[
               { head: 'adapter', cell: (row: Difference) => <PlaceLink to={fabricPlace(`nic:${row.subject}`)}>{row.subject}</PlaceLink> },
               { head: 'difference', cell: (row) => (Object.hasOwn(kWords, row.kind) ? kWords[row.kind] : row.kind) },
               { head: 'the file says', cell: (row) => row.expected || '–' },
               { head: 'seen', cell: (row) => row.seen || '–' },
             ]} />
    </section>
  );
}

export function Changes({ fabric }: { fabric: Fabric }) {
  return (
    <section class="card" aria-label="Changes">
      <div class="chart-head"><h2>What changed?</h2></div>
      <Table caption="Changes of what agents report" what="changes" sorted="newest first" rows={fabric.changes} total={fabric.changesTotal} rowKey={(row) => `${row.time_unix_ns}/${row.subject}`} pageRows={8} columns={[
        { head: 'when', cell: (row: FabricChange) => <span title={utc(row.time_unix_ns)}>{clock(row.time_unix_ns, true)}</span> },
        { head: 'what', cell: (row) => row.subject },
        { head: 'before', cell: (row) => row.before || 'not there' },
        { head: 'after', cell: (row) => row.after || 'gone' },
      ]} />
    </section>
  );
}
