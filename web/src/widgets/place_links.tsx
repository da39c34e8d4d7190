// A host or a GPU by name, wherever one is named: leads to its page.
import { clean } from '../base/format';
import { gpuPlace, nodePlace } from '../base/url';
import { PlaceLink } from './frame';

export function HostLink({ host, none = '–' }: { host: string; none?: string }) {
  return host ? <PlaceLink to={nodePlace(host)}>{clean(host)}</PlaceLink> : <>{none}</>;
}

export function GpuLink({ uuid, label = '' }: { uuid: string; label?: string }) {
  return uuid ? <PlaceLink to={gpuPlace(uuid)}>{label || clean(uuid)}</PlaceLink> : <>{label || '–'}</>;
}
