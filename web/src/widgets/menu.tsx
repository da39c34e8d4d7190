// The menu of a chart: a button and, below it, a short list of buttons. Esc and a click elsewhere close it.
import { useEffect, useRef, useState } from 'preact/hooks';
import { Refused } from '../base/api';

export interface MenuItem {
  label: string;
  run: () => void | Promise<unknown>;
}

export function Menu({ label, items }: { label: string; items: MenuItem[] }) {
  const [open, setOpen] = useState(false);
  const [said, setSaid] = useState('');
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!open) return undefined;
    root.current?.querySelector<HTMLElement>('[role=menuitem]')?.focus();
    const outside = (event: Event): void => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener('pointerdown', outside);
    return () => document.removeEventListener('pointerdown', outside);
  }, [open]);
  const onKeyDown = (event: KeyboardEvent): void => {
    if (!open) return;
    const entries = [...(root.current?.querySelectorAll<HTMLElement>('[role=menuitem]') ?? [])];
    const at = entries.indexOf(document.activeElement as HTMLElement);
    if (event.key === 'Escape') {
      setOpen(false);
      button.current?.focus();
    } else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      const next = at + (event.key === 'ArrowDown' ? 1 : -1);
      entries[(next + entries.length) % entries.length]?.focus();
    } else if (event.key === 'Tab') {
      setOpen(false);
      return;
    } else if (event.key !== 'Enter' && event.key !== ' ') {
      return;
    }
    event.stopPropagation();
    if (event.key !== 'Enter' && event.key !== ' ') event.preventDefault();
  };
  return (
    <div class="menu" ref={root} onKeyDown={onKeyDown}>
      <button ref={button} type="button" class="plain" aria-haspopup="menu" aria-expanded={open} aria-label={label} title={label}
              onClick={() => setOpen(!open)}>
        ⋯
      </button>
      {open && (
        <div role="menu" aria-label={label} class="menu-list">
          {items.map((item) => (
            <button
              type="button"
              role="menuitem"
              tabIndex={-1}
              key={item.label}
              onClick={async () => {
                let said = '';
                try {
                  const result = await item.run();
                  said = result === true ? 'Copied' : result === false ? 'The browser refused to copy' : '';
                } catch (error) {
                  said = error instanceof Refused ? error.message : 'The server does not answer';
                }
                setOpen(false);
                button.current?.focus();
                setSaid(said);
                setTimeout(() => setSaid(''), said === 'Copied' ? 1_500 : 5_000);
              }}
            >
              {item.label}
            </button>
          ))}
        </div>
      )}
      <span class="said" role="status">{said}</span>
    </div>
  );
}
