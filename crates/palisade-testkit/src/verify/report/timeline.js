
'use strict';
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId('data').textContent);
  const canvas = byId('canvas'), tip = byId('tip'), pen = canvas.getContext('2d');
  if (!pen) return;
  const H = data.holds, O = data.ops, V = data.violations;
  const ENDED = ['released', 'its deadline passed', 'told that it is lost', 'its holder was killed', 'nothing ended it in this run'];
  const CALLS = ['acquire', 'release', 'read', 'write', 'compare and swap', 'append', 'add'];
  const ANSWERS = ['done', 'refused', 'refused: a later holder has been there', 'failed without effect', 'unknown whether it had an effect'];
  const STRIP = 46, AXIS = 22, HEAD = STRIP + AXIS, ROW = 16, GROUP = 22, TICKS = 8, SPAN = Math.max(1, data.span);
  const MIN = Math.min(SPAN, 20); // the closest zoom shows 20 µs

  // Times are sent as differences, and things are found by lane: undo and index once.
  const sums = (list) => { let sum = 0; for (let i = 0; i < list.length; i++) list[i] = sum += list[i]; };
  sums(H.from); sums(O.at);
  const group = (list) => { const by = data.keys.map(() => []); list.forEach((key, i) => by[key].push(i)); return by; };
  const holdsOf = group(H.key), opsOf = group(O.key);
  const workerOf = new Map(data.workers.map((worker) => [worker[0], worker]));
  const holdByOp = new Map(H.op.map((op, i) => [op, i])), opById = new Map(O.op.map((op, i) => [op, i]));
  const badHolds = new Set(), badOps = new Set();
  for (const [, , ops] of V) for (const op of ops) {
    if (holdByOp.has(op)) badHolds.add(holdByOp.get(op));
    if (opById.has(op)) badOps.add(opById.get(op));
  }
  const badKeys = new Set(V.map((violation) => violation[1]));
  const shown = data.loads.map(() => true);
  const keyLane = new Map();
  let view = [0, SPAN], scroll = 0, width = 0, height = 0, gutter = 0, lanes = [], total = 0, colour = {}, current = -1;

  // --- layout ---------------------------------------------------------------------------------
  function layout() {
    lanes = []; total = 0; keyLane.clear();
    const add = (lane) => { lane.y = total; total += lane.h; lanes.push(lane); if (lane.type === 'key') keyLane.set(lane.k, lane); };
    const kinds = data.kinds.map((_, kind) => kind).filter((kind) => data.faults.some((fault) => fault[0] === kind));
    if (kinds.length) add({ type: 'title', name: 'faults', h: GROUP });
    for (const kind of kinds) add({ type: 'fault', kind, name: data.kinds[kind], h: ROW });
    const count = data.workers.reduce((most, worker) => Math.max(most, worker[1] + 1), 0);
    if (count) add({ type: 'title', name: 'workers', h: GROUP });
    for (let n = 0; n < count; n++) add({ type: 'worker', n, name: 'worker ' + (n + 1), h: ROW });
    data.loads.forEach((load, l) => {
      if (!shown[l]) return;
      add({ type: 'title', name: load, h: GROUP });
      data.keys.forEach((key, k) => {
        if (data.loadOf[k] !== l) return;
        const name = key.startsWith(load + '/') ? key.slice(load.length + 1) : key;
        add({ type: 'key', k, name, h: Math.max(ROW + 2, data.rows[k] * ROW + (opsOf[k].length ? TICKS : 0) + 4) });
      });
    });
    resize();
  }
  function resize() {
    const coarse = matchMedia('(pointer: coarse)').matches;
    width = canvas.clientWidth; gutter = width < 640 ? 84 : 150;
    const most = coarse ? 3000 : Math.max(360, innerHeight * .78);
    height = Math.round(Math.min(HEAD + total + 10, most));
    const ratio = devicePixelRatio || 1;
    canvas.style.height = height + 'px';
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    look(view[0], view[1]);
  }
  function colours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ['card', 'ink', 'soft', 'faint', 'line', 'band', 'bad', 'accent', 'fault', 'on-fault', 'unknown', 'stall', 'good']) {
      colour[name] = style.getPropertyValue('--' + name).trim();
    }
    colour.who = Array.from({ length: 10 }, (_, i) => style.getPropertyValue('--w' + i).trim());
    draw();
  }
  const ofProcess = (process) => colour.who[(workerOf.has(process) ? workerOf.get(process)[1] : 0) % 10];

  // --- where things are -----------------------------------------------------------------------
  const x = (at) => gutter + (at - view[0]) / (view[1] - view[0]) * (width - gutter);
  const timeAt = (px) => view[0] + (px - gutter) / (width - gutter) * (view[1] - view[0]);
  const stripX = (at) => gutter + at / SPAN * (width - gutter);
  const yOf = (lane) => HEAD + lane.y - scroll;
  const laneOfKey = (k) => keyLane.get(k);
  function look(from, to) {
    const size = Math.min(SPAN, Math.max(MIN, to - from));
    from = Math.min(Math.max(0, from + (to - from - size) / 2), SPAN - size);
    view = [from, from + size];
    scroll = Math.min(Math.max(0, scroll), Math.max(0, HEAD + total + 10 - height));
    request();
  }
  function zoom(factor, px) {
    const at = timeAt(px === undefined ? (gutter + width) / 2 : Math.max(gutter, px));
    const size = Math.min(SPAN, Math.max(MIN, (view[1] - view[0]) * factor)), share = (at - view[0]) / (view[1] - view[0]);
    look(at - share * size, at + (1 - share) * size);
  }
  let asked = false;
  function request() { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; draw(); }); } }

  // --- words ----------------------------------------------------------------------------------
  function time(us) {
    const digits = (value) => value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : value.toFixed(0);
    return us < 1000 ? us + ' µs' : us < 1e6 ? digits(us / 1e3) + ' ms' : digits(us / 1e6) + ' s';
  }
  const seconds = (us) => (us / 1e6).toFixed(6) + ' s';
  function holdText(i) {
    const mode = H.mode[i] === 0 ? 'exclusive' : H.mode[i] < 0 ? 'shared' : 'slot ' + (H.slot[i] < 0 ? '?' : H.slot[i]) + ' of ' + H.mode[i];
    return data.keys[H.key[i]] + '\nheld by process ' + H.proc[i] + ', ' + mode + (H.token[i] ? ', token ' + H.token[i] : '') +
      '\nfrom ' + seconds(H.from[i]) + ' for ' + time(H.len[i]) + ', after waiting ' + time(H.wait[i]) +
      '\nended: ' + ENDED[H.ended[i]] + '\noperation ' + H.op[i] + (badHolds.has(i) ? '\npart of a violation' : '');
  }
  const opText = (i) => data.keys[O.key[i]] + '\n' + CALLS[O.call[i]] + ' by process ' + O.proc[i] + ': ' + ANSWERS[O.answer[i]] +
    '\nat ' + seconds(O.at[i]) + ', took ' + time(O.len[i]) + '\noperation ' + O.op[i] + (badOps.has(i) ? '\npart of a violation' : '');
  const faultText = (f) => data.kinds[f[0]] + ': ' + f[4] + '\nfrom ' + seconds(f[2]) + (f[3] > f[2] ? ' for ' + time(f[3] - f[2]) : '');
  function violationText(i) {
    const item = byId('v' + (i + 1));
    return 'violation ' + (i + 1) + '\n' + (item ? item.querySelector('.what').textContent : '') + '\nat ' + seconds(V[i][0]);
  }

  // --- drawing --------------------------------------------------------------------------------
  function draw() {
    if (!width || !colour.ink) return;
    pen.clearRect(0, 0, width, height);
    pen.save(); pen.beginPath(); pen.rect(0, HEAD, width, height - HEAD); pen.clip();
    const ticks = grid();
    for (const lane of lanes) {
      const y = yOf(lane);
      if (y > height || y + lane.h < HEAD) continue;
      if (lane.type === 'title') drawTitle(lane, y);
      else { drawName(lane, y); clipped(() => DRAW[lane.type](lane, y)); }
    }
    clipped(drawOver);
    pen.restore();
    drawAxis(ticks); drawStrip(); drawScrollbar();
  }
  function clipped(paint) {
    pen.save(); pen.beginPath(); pen.rect(gutter, HEAD, width - gutter, height - HEAD); pen.clip(); paint(); pen.restore();
  }
  function text(words, px, y, fill, font, room) {
    pen.font = font || '12px system-ui, sans-serif'; pen.fillStyle = fill; pen.textBaseline = 'middle';
    if (room !== undefined && pen.measureText(words).width > room) {
      let keep = words.length;
      while (keep > 1 && pen.measureText(words.slice(0, keep) + '…').width > room) keep--;
      words = words.slice(0, keep) + '…';
    }
    pen.fillText(words, px, y);
  }
  function drawTitle(lane, y) {
    pen.fillStyle = colour.band; pen.fillRect(0, y + 2, width, lane.h - 4);
    text(lane.name, 10, y + lane.h / 2, colour.ink, '600 12px system-ui, sans-serif', width - 20);
  }
  function drawName(lane, y) {
    const bad = lane.type === 'key' && badKeys.has(lane.k);
    text(lane.name, 10, y + Math.min(lane.h, ROW + 2) / 2, bad ? colour.bad : colour.soft, undefined, gutter - 18);
    pen.fillStyle = colour.line; pen.fillRect(0, y + lane.h - .5, width, .5);
  }
  const DRAW = {
    fault(lane, y) {
      for (const f of data.faults) if (f[0] === lane.kind) {
        const left = x(f[2]), right = x(f[3]);
        if (right < gutter - 2 || left > width) continue;
        pen.fillStyle = colour.fault; pen.globalAlpha = f[3] > f[2] ? .75 : 1;
        pen.fillRect(left, y + 3, Math.max(1.5, right - left), lane.h - 6); pen.globalAlpha = 1;
        if (right - left > 60) label(f[4], left, right, y + lane.h / 2, colour['on-fault']);
      }
    },
    worker(lane, y) {
      const middle = y + lane.h / 2;
      for (const [process, n, born, until, died] of data.workers) if (n === lane.n && until >= view[0] && born <= view[1]) {
        const left = x(born), right = x(until);
        pen.fillStyle = ofProcess(process); pen.globalAlpha = .55;
        pen.fillRect(left, middle - 2, Math.max(1, right - left), 4); pen.globalAlpha = 1;
        if (died) cross(right, middle, colour.ink);
      }
      for (const f of data.faults) if (f[3] > f[2] && workerOf.has(f[1]) && workerOf.get(f[1])[1] === lane.n) {
        pen.fillStyle = colour.fault; pen.fillRect(x(f[2]), middle - 4, Math.max(1, x(f[3]) - x(f[2])), 8);
      }
    },
    key(lane, y) {
      if (data.busy) drawBusy(data.busy[lane.k], y, lane.h);
      const last = [];
      for (const i of holdsOf[lane.k]) {
        const from = H.from[i], until = from + H.len[i];
        if (until < view[0] || from - H.wait[i] > view[1]) continue;
        const left = x(from), right = Math.max(left + 1, x(until)), row = H.row[i], top = y + 2 + row * ROW, bad = badHolds.has(i);
        // What would only paint over the same pixel is left out, unless it matters.
        if (right <= last[row] + .3 && !bad) continue;
        last[row] = Math.max(last[row] || 0, right);
        const fill = ofProcess(H.proc[i]);
        if (H.wait[i]) { pen.fillStyle = fill; pen.globalAlpha = .55; pen.fillRect(x(from - H.wait[i]), top + ROW / 2 - 2, left - x(from - H.wait[i]), 1); pen.globalAlpha = 1; }
        pen.fillStyle = fill;
        if (H.ended[i] === 4) { const fade = pen.createLinearGradient(right - 30, 0, right, 0); fade.addColorStop(0, fill); fade.addColorStop(1, 'transparent'); pen.fillStyle = fade; }
        pen.fillRect(left, top, right - left > 3 ? right - left - .5 : right - left, ROW - 4);
        if (H.ended[i] >= 1 && H.ended[i] <= 3 && right - left > 2) { pen.fillStyle = H.ended[i] === 3 ? colour.ink : colour.fault; pen.fillRect(right - 2.5, top - 1, 2.5, ROW - 2); }
        if (bad) { pen.strokeStyle = colour.bad; pen.lineWidth = 2; pen.strokeRect(left, top, Math.max(2, right - left), ROW - 4); }
        if (H.token[i] && right - left > 26) label(String(H.token[i]), left, right, top + ROW / 2 - 2);
      }
      const top = data.rows[lane.k] ? y + 2 + data.rows[lane.k] * ROW : y + lane.h / 2 - 2;
      for (const i of opsOf[lane.k]) {
        const left = x(O.at[i]), right = Math.max(left + 1.5, x(O.at[i] + O.len[i]));
        if (right < gutter || left > width) continue;
        pen.fillStyle = badOps.has(i) ? colour.bad : O.answer[i] === 2 ? colour.fault : O.answer[i] === 4 ? colour.unknown : colour.faint;
        pen.fillRect(left, top, right - left, TICKS - 3);
      }
    },
  };
  // Where holds are sampled: how much of the time the key was held, all holds counted.
  function drawBusy(levels, y, h) {
    const step = SPAN / levels.length;
    pen.fillStyle = colour.who[0];
    for (let i = Math.max(0, Math.floor(view[0] / step)); i < levels.length && i * step < view[1]; i++) {
      if (levels[i] === '0') continue;
      pen.globalAlpha = .07 * Number(levels[i]); pen.fillRect(x(i * step), y, x((i + 1) * step) - x(i * step), h - 1);
    }
    pen.globalAlpha = 1;
  }
  function label(words, left, right, y, fill) {
    left = Math.max(left, gutter); right = Math.min(right, width);
    pen.font = '600 10px system-ui, sans-serif';
    if (pen.measureText(words).width + 6 <= right - left) text(words, left + 4, y + .5, fill || colour.card, pen.font);
  }
  function cross(px, y, ink) {
    pen.strokeStyle = ink; pen.lineWidth = 1.5; pen.beginPath();
    pen.moveTo(px - 3, y - 4); pen.lineTo(px + 3, y + 4); pen.moveTo(px + 3, y - 4); pen.lineTo(px - 3, y + 4); pen.stroke();
  }
  function drawOver() {
    pen.fillStyle = colour.stall;
    for (const [from, until] of data.stalls) pen.fillRect(x(from), HEAD, Math.max(1, x(until) - x(from)), height);
    if (data.calm >= 0) {
      pen.strokeStyle = colour.good; pen.setLineDash([4, 4]); pen.lineWidth = 1; pen.beginPath();
      pen.moveTo(x(data.calm), HEAD); pen.lineTo(x(data.calm), height); pen.stroke(); pen.setLineDash([]);
      text('calm', x(data.calm) + 4, HEAD + 11, colour.good, '600 11px system-ui, sans-serif');
    }
    V.forEach(([at, k], i) => {
      const px = x(at);
      if (px < gutter - 6 || px > width + 6) return;
      pen.fillStyle = colour.bad; pen.globalAlpha = i === current ? .8 : .28; pen.fillRect(px - .5, HEAD, i === current ? 1.5 : 1, height); pen.globalAlpha = 1;
      const lane = laneOfKey(k), y = lane ? yOf(lane) : HEAD;
      if (y + (lane ? lane.h : 10) < HEAD) return;
      pen.beginPath(); pen.moveTo(px - 6, y - 4); pen.lineTo(px + 6, y - 4); pen.lineTo(px, y + 5); pen.fill();
    });
  }
  function grid() {
    const room = Math.max(2, Math.floor((width - gutter) / 95)), rough = (view[1] - view[0]) / room, power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(1, [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough)), ticks = [];
    for (let at = Math.ceil(view[0] / step) * step; at <= view[1]; at += step) ticks.push(at);
    pen.fillStyle = colour.line; for (const at of ticks) pen.fillRect(Math.round(x(at)), HEAD, 1, height);
    return { ticks, digits: Math.max(0, Math.min(6, 6 - Math.floor(Math.log10(step) + 1e-9))) };
  }
  function drawAxis({ ticks, digits }) {
    pen.fillStyle = colour.line; pen.fillRect(0, HEAD - 1, width, 1);
    pen.textAlign = 'center';
    for (const at of ticks) if (x(at) < width - 22) text((at / 1e6).toFixed(digits) + ' s', Math.max(gutter + 12, x(at)), STRIP + AXIS / 2, colour.soft, '11px system-ui, sans-serif');
    pen.textAlign = 'left';
  }
  function drawStrip() {
    const size = width - gutter, counts = new Array(Math.max(1, Math.ceil(size / 2))).fill(0);
    data.density.forEach((list, load) => { if (shown[load]) list.forEach((n, i) => { counts[Math.min(counts.length - 1, Math.floor(i * data.bucket / SPAN * counts.length))] += n; }); });
    const most = Math.max(1, ...counts);
    text('grants', 10, STRIP / 2 - 6, colour.soft); text('all ' + H_ALL.toLocaleString('en'), 10, STRIP / 2 + 9, colour.faint, '11px system-ui, sans-serif', gutter - 14);
    pen.fillStyle = colour.faint; pen.globalAlpha = .6;
    counts.forEach((n, i) => { const h = n / most * (STRIP - 12); pen.fillRect(gutter + i * 2, STRIP - 2 - h, 1.6, h); });
    pen.globalAlpha = 1;
    pen.fillStyle = colour.bad; for (const [at] of V) pen.fillRect(stripX(at) - 1, 2, 2, 7);
    if (view[1] - view[0] < SPAN) {
      const left = stripX(view[0]), right = Math.max(left + 3, stripX(view[1]));
      pen.fillStyle = colour.stall; pen.fillRect(gutter, 0, left - gutter, STRIP); pen.fillRect(right, 0, width - right, STRIP);
      pen.strokeStyle = colour.accent; pen.lineWidth = 1.5; pen.strokeRect(left, 1, right - left, STRIP - 2);
    }
    pen.fillStyle = colour.line; pen.fillRect(0, STRIP, width, 1);
  }
  const H_ALL = data.density.reduce((sum, list) => list.reduce((a, b) => a + b, sum), 0);
  function drawScrollbar() {
    const room = height - HEAD, all = total + 10;
    if (all <= room + 1) return;
    pen.fillStyle = colour.faint; pen.globalAlpha = .55;
    pen.fillRect(width - 5, HEAD + scroll / all * room, 3, Math.max(20, room / all * room)); pen.globalAlpha = 1;
  }

  // --- what is under the pointer --------------------------------------------------------------
  function find(px, py) {
    if (py < HEAD || px < gutter) return '';
    for (let i = 0; i < V.length; i++) {
      const lane = laneOfKey(V[i][1]), y = lane ? yOf(lane) : HEAD;
      if (Math.abs(x(V[i][0]) - px) <= 6 && py >= y - 6 && py <= y + 6) return violationText(i);
    }
    const lane = lanes.find((one) => py >= yOf(one) && py < yOf(one) + one.h);
    if (!lane) return '';
    const hit = (from, until) => px >= x(from) - 2 && px <= Math.max(x(from) + 1, x(until)) + 2;
    if (lane.type === 'fault') return data.faults.filter((f) => f[0] === lane.kind && hit(f[2], f[3])).slice(0, 4).map(faultText).join('\n\n');
    if (lane.type === 'worker') {
      const worker = data.workers.find((w) => w[1] === lane.n && hit(w[2], w[3]));
      const struck = worker ? data.faults.filter((f) => f[1] === worker[0] && hit(f[2], f[3])).slice(0, 3).map((f) => '\n' + faultText(f)) : [];
      return worker ? 'process ' + worker[0] + '\nfrom ' + seconds(worker[2]) + (worker[4] ? ', killed at ' : ', last seen at ') + seconds(worker[3]) + struck.join('') : '';
    }
    if (lane.type !== 'key') return '';
    const row = Math.floor((py - yOf(lane) - 2) / ROW), rows = data.rows[lane.k];
    if (row >= rows) { const op = opsOf[lane.k].find((i) => hit(O.at[i], O.at[i] + O.len[i])); return op === undefined ? '' : opText(op); }
    const mine = holdsOf[lane.k].filter((i) => H.row[i] === row);
    let hold = mine.find((i) => hit(H.from[i], H.from[i] + H.len[i]));
    if (hold === undefined) hold = mine.find((i) => hit(H.from[i] - H.wait[i], H.from[i]));
    return hold === undefined ? '' : holdText(hold);
  }
  function hover(px, py) {
    const words = find(px, py);
    tip.hidden = !words;
    if (!words) return;
    tip.textContent = words;
    tip.style.left = Math.max(6, Math.min(px + 14, width - tip.offsetWidth - 8)) + 'px';
    tip.style.top = (py + 18 + tip.offsetHeight > height ? Math.max(4, py - tip.offsetHeight - 12) : py + 18) + 'px';
  }

  // --- moving about ---------------------------------------------------------------------------
  const pointers = new Map();
  let onStrip = false;
  const spot = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  const centre = (px) => { const at = (px - gutter) / (width - gutter) * SPAN, half = (view[1] - view[0]) / 2; look(at - half, at + half); };
  canvas.addEventListener('pointerdown', (event) => {
    canvas.setPointerCapture(event.pointerId);
    const at = spot(event); pointers.set(event.pointerId, at); tip.hidden = true;
    onStrip = at[1] < STRIP && view[1] - view[0] < SPAN;
    if (onStrip) centre(at[0]);
  });
  canvas.addEventListener('pointermove', (event) => {
    const now = spot(event), before = pointers.get(event.pointerId);
    if (!before) return hover(now[0], now[1]);
    pointers.set(event.pointerId, now);
    if (onStrip) return centre(now[0]);
    const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    if (others.length) {
      const gap = (a, b) => Math.max(10, Math.abs(a[0] - b[0]));
      return zoom(gap(before, others[0]) / gap(now, others[0]), (now[0] + others[0][0]) / 2);
    }
    const shift = (before[0] - now[0]) / (width - gutter) * (view[1] - view[0]);
    scroll += before[1] - now[1];
    look(view[0] + shift, view[1] + shift);
  });
  const drop = (event) => { if (pointers.delete(event.pointerId) && event.pointerType !== 'mouse') hover(...spot(event)); };
  canvas.addEventListener('pointerup', drop);
  canvas.addEventListener('pointercancel', (event) => pointers.delete(event.pointerId));
  canvas.addEventListener('pointerleave', () => { tip.hidden = true; });
  canvas.addEventListener('dblclick', (event) => zoom(.4, spot(event)[0]));
  canvas.addEventListener('wheel', (event) => {
    const whole = view[1] - view[0] >= SPAN, sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    // Zoomed out as far as it goes, the wheel scrolls the page on: nobody is caught here.
    if (whole && (sideways || event.deltaY > 0)) return;
    event.preventDefault(); tip.hidden = true;
    const unit = event.deltaMode === 1 ? 30 : 1, shift = (event.deltaX || event.deltaY) * unit / width * (view[1] - view[0]);
    if (sideways) look(view[0] + shift, view[1] + shift);
    else zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY * unit)) * .006), spot(event)[0]);
  }, { passive: false });

  function toViolation(i) {
    if (!V.length) return;
    current = (i + V.length) % V.length;
    const [at, k, ops] = V[current];
    if (k >= 0 && !shown[data.loadOf[k]]) { shown[data.loadOf[k]] = true; chips(); layout(); }
    let from = at, to = at;
    for (const op of ops) {
      const h = holdByOp.get(op), o = opById.get(op);
      if (h !== undefined) { from = Math.min(from, H.from[h]); to = Math.max(to, H.from[h] + H.len[h]); }
      if (o !== undefined) { from = Math.min(from, O.at[o]); to = Math.max(to, O.at[o] + O.len[o]); }
    }
    const pad = Math.max(500, (to - from) * .6), lane = laneOfKey(k);
    if (lane) scroll = lane.y - Math.max(40, (height - HEAD) / 3);
    look(from - pad, to + pad);
  }
  const whole = () => { scroll = 0; current = -1; look(0, SPAN); };
  const move = (share) => { const shift = (view[1] - view[0]) * share; look(view[0] + shift, view[1] + shift); };
  const down = (px) => { scroll += px; look(view[0], view[1]); };
  const KEYS = {
    '+': () => zoom(.6), '=': () => zoom(.6), '-': () => zoom(1 / .6), '−': () => zoom(1 / .6), '0': whole, f: whole,
    ArrowLeft: () => move(-.15), ArrowRight: () => move(.15), ArrowUp: () => down(-48), ArrowDown: () => down(48),
    Home: () => move(-1e9), End: () => move(1e9), n: () => toViolation(current + 1), p: () => toViolation(Math.max(0, current) - 1),
  };
  canvas.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key)) return;
    event.preventDefault(); KEYS[event.key]();
  });
  const press = (id, act) => byId(id).addEventListener('click', act);
  press('in', () => zoom(.5)); press('out', () => zoom(2)); press('fit', whole);
  press('next', KEYS.n); press('previous', KEYS.p);
  byId('next').hidden = byId('previous').hidden = !V.length;
  for (const link of document.querySelectorAll('[data-violation]')) {
    link.addEventListener('click', () => { toViolation(Number(link.dataset.violation)); canvas.focus({ preventScroll: true }); });
  }

  function chips() {
    const box = byId('loads'); box.textContent = '';
    if (data.loads.length < 2) return;
    data.loads.forEach((name, load) => {
      const chip = document.createElement('button');
      chip.type = 'button'; chip.textContent = name; chip.setAttribute('aria-pressed', String(shown[load]));
      chip.addEventListener('click', () => { shown[load] = !shown[load]; chips(); layout(); box.children[load].focus(); });
      box.append(chip);
    });
  }
  function copyButton() {
    const button = document.createElement('button'), command = byId('command');
    button.type = 'button'; button.textContent = 'copy';
    const select = () => { const range = document.createRange(); range.selectNodeContents(command); getSelection().removeAllRanges(); getSelection().addRange(range); };
    const say = (word) => { button.textContent = word; setTimeout(() => { button.textContent = 'copy'; }, 1500); };
    button.addEventListener('click', () => {
      // A page from a file may not reach the clipboard in every browser: then the text is selected for the user to copy.
      if (!navigator.clipboard) { select(); return say('selected'); }
      navigator.clipboard.writeText(command.textContent).then(() => say('copied'), () => { select(); say('selected'); });
    });
    command.after(button);
  }

  byId('zoomable').hidden = false; byId('overview').hidden = true;
  chips(); copyButton(); layout(); colours();
  addEventListener('resize', resize);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', colours);
})();
