import { render } from 'preact';
import { rooted } from './base/root';
import { askSession, session } from './base/session';
import { startTheme } from './base/theme';
import { place, watchAddress } from './base/url';
import { AlertsPage } from './pages/alerts';
import { CardinalityPage } from './pages/cardinality';
import { Fleet } from './pages/fleet';
import { IncidentPage } from './pages/incident';
import { IncidentsPage } from './pages/incidents';
import { JobPage } from './pages/job';
import { Missing } from './pages/missing';
import { ProfilePage } from './pages/profile';
import { ProfilesPage } from './pages/profiles';
import { ServicePage } from './pages/service';
import { ServicesPage } from './pages/services';
import { SignIn } from './pages/sign_in';
import { SlePage } from './pages/sle';
import { StepPage } from './pages/step';
import { lazily } from './widgets/lazy';
import './style/tokens.css';
import './style/base.css';
import './style/job.css';
import './style/step.css';
import './style/profile.css';
import './style/sle.css';

const FabricPage = lazily('the fabric', async () => (await import('./pages/fabric')).FabricPage);
const DocsPage = lazily('the document', async () => (await import('./pages/docs')).DocsPage);
const PathPage = lazily('the path', async () => (await import('./pages/path')).PathPage);
const NodesPage = lazily('the nodes', async () => (await import('./pages/nodes')).NodesPage);
const LogsPage = lazily('the logs', async () => (await import('./pages/logs')).LogsPage);
const NodePage = lazily('the node', async () => (await import('./pages/node')).NodePage);

function App() {
  if (session.value.wanted) return <SignIn />;
  const at = place.value;
  if (at.page === 'fleet') return <Fleet place={at} />;
  if (at.page === 'alerts') return <AlertsPage place={at} />;
  if (at.page === 'incidents') return <IncidentsPage />;
  if (at.page === 'incident') return <IncidentPage key={at.id} place={at} />;
  if (at.page === 'sle') return <SlePage place={at} />;
  if (at.page === 'cardinality') return <CardinalityPage />;
  if (at.page === 'job') return <JobPage key={at.job} place={at} />;
  if (at.page === 'step') return <StepPage key={`${at.job}/${at.step}`} place={at} />;
  if (at.page === 'profiles') return <ProfilesPage key={at.job} place={at} />;
  if (at.page === 'profile') return <ProfilePage key={`${at.job}/${at.capture}`} place={at} />;
  if (at.page === 'docs') return <DocsPage place={at} />;
  if (at.page === 'fabric') return <FabricPage place={at} />;
  if (at.page === 'path') return <PathPage place={at} />;
  if (at.page === 'logs') return <LogsPage place={at} />;
  if (at.page === 'nodes') return <NodesPage place={at} />;
  if (at.page === 'node') return <NodePage key={at.host} place={at} />;
  if (at.page === 'gpu') return <NodePage key={at.uuid} place={at} />;
  if (at.page === 'services') return <ServicesPage />;
  if (at.page === 'service') return <ServicePage key={at.service} place={at} />;
  return <Missing path={at.path} />;
}

// Its address in index.html is relative to the page that was loaded, and pages are left without loading another.
document.querySelector('link[rel=icon]')?.setAttribute('href', rooted('/icon.svg'));
startTheme();
watchAddress();
void askSession();
render(<App />, document.getElementById('app')!);
