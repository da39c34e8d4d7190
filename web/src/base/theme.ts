// Light or dark: as the system says until the reader chooses, in the address (?theme=dark, for a wall screen) or by the button.
import { signal } from '@preact/signals';

export type Theme = 'light' | 'dark';
const kKey = 'lockstep-theme';

export const theme = signal<Theme>('light');

export function startTheme(): void {
  const system = matchMedia('(prefers-color-scheme: dark)');
  const asked = new URLSearchParams(location.search).get('theme');
  let chosen = isTheme(asked) ? asked : stored();
  const apply = (): void => {
    theme.value = chosen ?? (system.matches ? 'dark' : 'light');
    document.documentElement.dataset['theme'] = theme.value;
  };
  if (isTheme(asked)) store(asked);
  system.addEventListener('change', () => {
    chosen = stored();
    apply();
  });
  apply();
}

export function toggleTheme(): void {
  theme.value = theme.value === 'dark' ? 'light' : 'dark';
  document.documentElement.dataset['theme'] = theme.value;
  store(theme.value);
}

function isTheme(text: string | null): text is Theme {
  return text === 'light' || text === 'dark';
}

// Storage may be forbidden; then the choice lasts as long as the page.
function stored(): Theme | null {
  try {
    const text = localStorage.getItem(kKey);
    return isTheme(text) ? text : null;
  } catch {
    return null;
  }
}

function store(choice: Theme): void {
  try {
    localStorage.setItem(kKey, choice);
  } catch {
    // Nothing to do: see stored().
  }
}
