import { clean } from '../base/format';
import { docsPlace, fabricPlace, logsPlace, nodesPlace, slePlace } from '../base/url';
import { Frame, PlaceLink } from '../widgets/frame';

export function Missing({ path }: { path: string }) {
  document.title = 'Not here · Lockstep';
  return (
    <Frame crumbs={[{ label: 'Fleet', to: { page: 'fleet' } }, { label: 'not here', to: { page: 'fleet' } }]}>
      <section class="card">
        <h2 class="sentence">There is no page {clean(path)}.</h2>
        <p class="muted">
          There are the <PlaceLink to={{ page: 'fleet' }}>fleet</PlaceLink> with its jobs, <PlaceLink to={nodesPlace()}>nodes</PlaceLink>, <PlaceLink to={{ page: 'services' }}>services</PlaceLink>,
          the <PlaceLink to={fabricPlace()}>fabric</PlaceLink>, <PlaceLink to={slePlace()}>SLEs</PlaceLink>, <PlaceLink to={{ page: 'incidents' }}>incidents</PlaceLink>, <PlaceLink to={{ page: 'alerts', id: '' }}>alerts</PlaceLink>, <PlaceLink to={logsPlace()}>logs</PlaceLink>, <PlaceLink to={{ page: 'cardinality' }}>series</PlaceLink> and <PlaceLink to={docsPlace()}>documents</PlaceLink>.
        </p>
      </section>
    </Frame>
  );
}
