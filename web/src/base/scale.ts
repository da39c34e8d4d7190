// The one colour scale for excess: cividis, dark blue (as its peers) to yellow (far slower). Even to the eye and safe for
// colour-blind readers. Values at or below 0 take the first colour, values at or above `max` the last.

const kStops = ['00224e', '123570', '3b496c', '575d6d', '707173', '8a8678', 'a59c74', 'c3b369', 'e1cc55', 'fee838'];

// 256 entries, packed as the bytes R, G, B, A in memory order.
export const kScale: Uint32Array = build();

export function scaleIndex(value: number, max: number): number {
  if (!(value > 0)) return 0;
  return Math.min(255, Math.floor((value / max) * 256));
}

export function scaleCss(share: number): string {
  const bytes = new Uint8Array(kScale.buffer, Math.max(0, Math.min(255, Math.round(share * 255))) * 4, 3);
  return `rgb(${bytes[0]}, ${bytes[1]}, ${bytes[2]})`;
}

// The next round number at or above the value: a legend that stays put while data trickles in.
export function niceCeil(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 1.5, 2, 3, 4, 5, 6, 8, 10]) if (value <= step * power * (1 + 1e-9)) return step * power;
  return 10 * power;
}

function build(): Uint32Array {
  const table = new Uint8Array(256 * 4);
  for (let i = 0; i < 256; i += 1) {
    const place = (i / 255) * (kStops.length - 1);
    const low = Math.min(kStops.length - 2, Math.floor(place));
    const from = parseInt(kStops[low]!, 16);
    const to = parseInt(kStops[low + 1]!, 16);
    for (let channel = 0; channel < 3; channel += 1) {
      const shift = 16 - 8 * channel;
      const a = (from >> shift) & 255;
      const b = (to >> shift) & 255;
      table[i * 4 + channel] = Math.round(a + (b - a) * (place - low));
    }
    table[i * 4 + 3] = 255;
  }
  return new Uint32Array(table.buffer);
}
