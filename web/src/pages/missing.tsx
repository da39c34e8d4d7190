import { clean } from '../base/format';
import { Frame } from '../widgets/frame';

export function Missing({ path }: { path: string }) {
  document.title = 'Not here · Lockstep';
  return (
    <Frame crumbs={[{ label: 'Fleet', to: { page: 'fleet' } }, { label: 'not here', to: { page: 'fleet' } }]}>
      <section class="card">
        <h2 class="sentence">There is no page {clean(path)}.</h2>
        <p class="muted">Pages are / (the fleet), /jobs/JOB, /jobs/JOB/steps/N and /services/NAME.</p>
      </section>
    </Frame>
  );
}
