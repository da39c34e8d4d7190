// Where each rank of a kernel profile stands.
import { paths } from '../base/api';
import { bytes, count } from '../base/format';
import type { Profile, ProfileRank } from '../base/profile';
import { rooted } from '../base/root';
import { HostLink } from '../widgets/place_links';
import { Table } from '../widgets/table';

export function RankStates({ job, profile }: { job: string; profile: Profile }) {
  return (
    <Table caption={`Ranks of profile ${profile.capture}`} what="ranks" sorted="by rank" rows={profile.ranks} total={profile.ranks.length}
           rowKey={(rank) => rank.rank} marked={(rank) => rank.state === 'failed'} columns={[
             { head: 'rank', numeric: true, cell: (rank: ProfileRank) => count(rank.rank) },
             { head: 'host', cell: (rank) => <HostLink host={rank.host} /> },
             { head: 'state', cell: (rank) => rank.state },
             { head: 'size', numeric: true, cell: (rank) => (rank.bytes === null ? '' : bytes(rank.bytes)) },
             { head: 'trace', cell: (rank) => rank.file && <a href={rooted(paths.profileFile(job, profile.capture, rank.file))} download>{rank.file}</a> },
             { head: 'why', cell: (rank) => rank.reason },
           ]} />
  );
}
