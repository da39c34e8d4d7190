// Asks again and again while someone looks: one question at a time, none while the tab is hidden.
import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { Refused } from './api';

const kEveryMs = 1_000;

// The state of the line to the server, one for the whole page.
//   lostSince  when the last answer came, once an answer is overdue; null while all is well
export const line = signal<{ lastAnswerMs: number | null; lostSince: number | null; never: boolean }>(
  { lastAnswerMs: null, lostSince: null, never: false });

export function noteAnswer(): void {
  line.value = { lastAnswerMs: Date.now(), lostSince: null, never: false };
}

export function noteSilence(): void {
  const { lastAnswerMs } = line.peek();
  line.value = { lastAnswerMs, lostSince: lastAnswerMs, never: lastAnswerMs === null };
}

// Runs `ask` now and every second (or as often as everyMs says, asked after each round) until the keys change or the component
// goes. `refused` hears of a 4xx answer, or null once a good one came.
export function usePoll(keys: unknown[], ask: (signal: AbortSignal) => Promise<void>, refused: (message: string | null) => void,
                        everyMs: () => number = () => kEveryMs): void {
  useEffect(() => {
    const over = new AbortController();
    let timer = 0;
    let running = false;
    const round = async (): Promise<void> => {
      clearTimeout(timer);
      if (running || over.signal.aborted) return;
      running = true;
      const start = Date.now();
      try {
        await ask(over.signal);
        if (over.signal.aborted) return;
        noteAnswer();
        refused(null);
      } catch (error) {
        if (over.signal.aborted) return;
        if (error instanceof Refused) {
          noteAnswer();
          refused(error.message);
        } else {
          noteSilence();
        }
      } finally {
        running = false;
        if (!over.signal.aborted && !document.hidden) {
          timer = window.setTimeout(() => void round(), Math.max(50, everyMs() - (Date.now() - start)));
        }
      }
    };
    const wake = (): void => {
      if (!document.hidden) void round();
    };
    document.addEventListener('visibilitychange', wake);
    void round();
    return () => {
      over.abort();
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', wake);
    };
  }, keys);
}

// For usePoll(): the past does not change, so it is asked for rarely.
const kNowMs = 10_000;
const kPastMs = 60_000;
export const everyAt = (at: number | null) => (): number => (at === null ? kNowMs : kPastMs);

// An older server, or one that has nothing of the kind, says no: that is known, and not a failure of the page.
export async function unlessRefused<T>(answer: Promise<T>): Promise<T | null> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof Refused) return null;
    throw error;
  }
}
