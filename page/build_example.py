"""Draw and sound the page's examples, in each of which two things sound in turn.

In a street a bird sings and a car honks; in a room a guitar is played and an alarm clock beeps.

No photograph or recording of others may be in the repository. What the page shows over these scenes
is what the model makes of them.
"""

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SIZE, FINE = (480, 360), 3  # drawn larger, for smooth edges
RATE, FPS = 16_000, 12
TURNS = ("bird", "car")
TURN = 3.0  # s


class Canvas:
    """Shapes in units of the final picture."""

    def __init__(self, size):
        self.image = Image.new("RGB", [side * FINE for side in size])
        self.draw = ImageDraw.Draw(self.image)

    def polygon(self, points, color):
        """Fill a polygon."""
        self.draw.polygon([(FINE * x, FINE * y) for x, y in points], fill=color)

    def ellipse(self, x, y, rx, ry, color):
        """Fill an ellipse around x, y."""
        box = [FINE * v for v in (x - rx, y - ry, x + rx, y + ry)]
        self.draw.ellipse(box, fill=color)

    def rounded(self, x1, y1, x2, y2, r, color):
        """Fill a rectangle with round corners."""
        self.draw.rounded_rectangle([FINE * v for v in (x1, y1, x2, y2)], FINE * r, fill=color)


def draw_bird(to, x, y, open_bill, scale=0.8):
    """A robin, looking to the right."""

    def p(points):
        return [(x + scale * px, y + scale * py) for px, py in points]

    def e(cx, cy, rx, ry, color):
        to.ellipse(x + scale * cx, y + scale * cy, scale * rx, scale * ry, color)

    red, gray, cream, dark = (190, 90, 50), (120, 105, 90), (235, 220, 195), (58, 42, 32)
    for leg in (-2, 18):
        to.polygon(p([(leg, 42), (leg + 4, 42), (leg + 2, 72), (leg - 2, 72)]), dark)
    to.polygon(p([(-42, 16), (-108, 46), (-100, 60), (-34, 38)]), dark)  # tail
    e(0, -2, 60, 54, gray)
    e(21, 3, 41, 43, red)
    e(17, 32, 28, 22, cream)
    e(43, -63, 33, 33, gray)
    e(51, -54, 25, 28, red)
    to.polygon(p([(-52, -16), (25, -21), (10, 24), (-64, 34)]), dark)  # wing
    to.polygon(p([(-52, -4), (10, -8), (0, 16), (-56, 24)]), (95, 80, 68))
    to.polygon(p([(72, -74), (102, -66 - 6 * open_bill), (73, -60)]), (70, 60, 50))
    to.polygon(p([(72, -60), (96, -56 + 8 * open_bill), (70, -50)]), (50, 42, 36))
    e(53, -71, 7, 7, (15, 12, 10))
    e(56, -74, 2, 2, (255, 255, 255))


def draw_car(to, x, y, lit):
    """A red hatchback from the side, looking to the left."""
    red, dark, glass = (196, 34, 38), (120, 16, 22), (150, 190, 210)
    to.ellipse(x + 2, y + 44, 118, 9, (70, 70, 74))  # shadow
    body = [(-112, 38), (-116, 6), (-100, -6), (-62, -12), (-36, -46), (46, -50), (86, -14)]
    body += [(108, -8), (114, 10), (112, 38)]
    to.polygon([(x + px, y + py) for px, py in body], red)
    to.polygon([(x + px, y + py) for px, py in ((-50, -12), (-29, -40), (2, -42), (2, -12))], glass)
    to.polygon([(x + px, y + py) for px, py in ((9, -12), (9, -42), (42, -43), (70, -13))], glass)
    to.polygon(
        [(x + px, y + py) for px, py in ((-114, 26), (113, 26), (112, 38), (-112, 38))], dark
    )
    to.polygon([(x + px, y + py) for px, py in ((4, -12), (7, -12), (7, 26), (4, 26))], dark)
    to.rounded(x + 14, y - 4, x + 28, y, 2, dark)
    if lit:
        to.ellipse(x - 112, y + 4, 26, 18, (255, 236, 160))
    to.ellipse(x - 107, y + 4, 7, 6, (255, 246, 205) if lit else (225, 225, 215))
    to.rounded(x + 104, y - 4, x + 113, y + 8, 2, (240, 90, 60))
    for wheel in (-70, 70):
        to.ellipse(x + wheel, y + 36, 24, 24, (28, 28, 30))
        to.ellipse(x + wheel, y + 36, 13, 13, (180, 184, 190))
        to.ellipse(x + wheel, y + 36, 4, 4, (70, 70, 74))


def draw_backdrop(rng):
    """Leaves out of focus, and a road."""
    to, (width, height) = Canvas(SIZE), SIZE
    to.polygon([(0, 0), (width, 0), (width, height), (0, height)], (90, 120, 70))
    for _ in range(260):
        x, y, r = rng.uniform(0, width), rng.uniform(0, 250), rng.uniform(8, 40)
        green = rng.uniform(60, 190)
        to.ellipse(x, y, r, r, (int(0.75 * green), int(green), int(0.5 * green)))
    to.image = to.image.filter(ImageFilter.GaussianBlur(9 * FINE))
    to.draw = ImageDraw.Draw(to.image)
    for row in range(262, height):
        gray = int(80 + 0.35 * (row - 262))
        to.polygon([(0, row), (width, row), (width, row + 1), (0, row + 1)], (gray, gray, gray + 4))
    for x in range(10, width, 90):
        to.polygon([(x, 338), (x + 46, 338), (x + 43, 344), (x - 3, 344)], (206, 204, 194))
    return to.image


def draw_grain(rng):
    """The grain of a film, coarser than a pixel and the same in all pictures; more on the road."""
    half = tuple(side // 2 for side in SIZE)
    small = rng.normal(0, 1, half[::-1]).astype(np.float32)
    grain = np.asarray(Image.fromarray(small).resize(SIZE, Image.Resampling.BICUBIC))
    rows = np.linspace(5, 9, SIZE[1], dtype=np.float32)
    return (grain * rows[:, None])[..., None]


def photograph(image, grain):
    """A drawing as a camera would see it: smaller, a little soft, with grain."""
    image = image.filter(ImageFilter.GaussianBlur(2)).resize(SIZE, Image.Resampling.LANCZOS)
    soft = np.asarray(image.filter(ImageFilter.GaussianBlur(1.7)), np.float32)
    return np.clip(0.9 * (soft - 128) + 120 + grain, 0, 255).astype(np.uint8)


def draw_scene(time, backdrop, grain):
    """One picture: whoever sounds moves a little."""
    who, turn = TURNS[int(time // TURN) % len(TURNS)], time % TURN
    singing, honking = who == "bird" and 0.1 < turn < 2.8, who == "car" and is_honking(turn)
    to = Canvas(SIZE)
    to.image.paste(backdrop)
    to.polygon([(0, 196), (236, 170), (238, 178), (0, 212)], (92, 64, 44))
    for x, y in ((210, 166), (232, 178), (190, 184), (18, 186), (36, 206)):
        to.ellipse(x, y, 17, 9, (70, 120, 60))
    hop = 4 * abs(np.sin(9 * time)) if singing else 0
    draw_bird(to, 110, 120 - hop, max(0.0, np.sin(30 * time)) if singing else 0.0)
    shake = 1.5 * np.sin(60 * time) if honking else 0
    draw_car(to, 350, 272 + shake, honking)
    return photograph(to.image, grain)


def sing(seconds, rng):
    """Bird song: short falling and rising whistles."""
    song, start = np.zeros(int(seconds * RATE)), 0.1
    while start < seconds - 0.3:
        length = rng.uniform(0.06, 0.16)
        time = np.arange(int(length * RATE)) / RATE
        low, high = rng.uniform(2500, 3500), rng.uniform(4000, 6000)
        sweep = low + (high - low) * (time / length if rng.random() < 0.5 else 1 - time / length)
        sweep = sweep + 150 * np.sin(2 * np.pi * 40 * time)
        note = np.sin(2 * np.pi * np.cumsum(sweep) / RATE) * np.hanning(len(time))
        begin = int(start * RATE)
        song[begin : begin + len(note)] += 0.4 * note
        start += length + rng.uniform(0.02, 0.12)
    return song


def is_honking(time):
    """Two honks."""
    return 0.05 < time < 1.2 or 1.3 < time < 2.9


def honk(seconds):
    """A car's horn: two buzzing reeds, a third apart."""
    time = np.arange(int(seconds * RATE)) / RATE
    tone = sum(
        np.sin(2 * np.pi * hz * k * time + k) / k**0.7 for hz in (415, 522) for k in range(1, 9)
    )
    gate = np.array([is_honking(t) for t in time], float)
    smooth = np.convolve(gate, np.hanning(320) / np.hanning(320).sum(), "same")
    return 0.12 * np.tanh(tone) * smooth


def draw_clock(to, x, y, time):
    """A round clock on the wall."""
    to.ellipse(x + 4, y + 5, 74, 74, (120, 104, 90))  # shadow
    to.ellipse(x, y, 74, 74, (70, 44, 28))
    to.ellipse(x, y, 63, 63, (244, 240, 228))

    def bar(turn, near, far, thick, color):
        s, c = np.sin(turn), -np.cos(turn)
        ends = ((near, 1), (far, 1), (far, -1), (near, -1))
        to.polygon([(x + r * s + k * thick * c, y + r * c - k * thick * s) for r, k in ends], color)

    for hour in range(12):
        near, thick = (51, 2) if hour % 3 else (46, 3)
        bar(hour * np.pi / 6, near, 58, thick, (20, 20, 22))
    bar(-0.9, -8, 34, 2.5, (15, 15, 18))
    bar(0.95, -8, 50, 2, (15, 15, 18))
    bar(int(2 * time) * np.pi / 30, -12, 52, 0.8, (190, 30, 30))
    to.ellipse(x, y, 4, 4, (15, 15, 18))


def draw_guitar(to, x, y, swing):
    """An acoustic guitar that stands upright."""
    wood, edge, dark = (206, 142, 70), (94, 52, 24), (44, 26, 16)
    for more, color in ((4, edge), (0, wood)):
        to.ellipse(x, y + 50, 62 + more, 56 + more, color)
        to.ellipse(x, y - 24, 46 + more, 42 + more, color)
        to.rounded(x - 40 - more, y - 30, x + 40 + more, y + 40, 12, color)
    to.ellipse(x, y + 2, 20, 20, (150, 92, 44))
    to.ellipse(x, y + 2, 17, 17, dark)
    to.polygon([(x - 8, y - 190), (x + 8, y - 190), (x + 9, y - 8), (x - 9, y - 8)], dark)
    for fret in range(y - 180, y - 15, 15):
        to.polygon([(x - 9, fret), (x + 9, fret), (x + 9, fret + 1), (x - 9, fret + 1)], (190,) * 3)
    to.polygon([(x - 14, y - 236), (x + 14, y - 236), (x + 9, y - 188), (x - 9, y - 188)], edge)
    for peg in range(3):
        for side in (-17, 17):
            to.ellipse(x + side, y - 228 + peg * 14, 4, 4, (220, 214, 196))
    to.rounded(x - 26, y + 62, x + 26, y + 70, 3, dark)  # bridge
    for k in range(6):
        top, low = x - 6 + 2.4 * k, x - 6.5 + 2.6 * k + swing * (-1) ** k
        ends = [(top, y - 216), (top + 0.6, y - 216), (low + 0.7, y + 64), (low - 0.1, y + 64)]
        to.polygon(ends, (236, 230, 214))


def draw_wall():
    """A room's wall, its skirting board and the floor."""
    to, (width, height) = Canvas(SIZE), SIZE
    for row in range(height):
        wall = (205, 190, 165) if row < 290 else (120, 84, 56)
        color = tuple(int((0.9 - 0.2 * row / height) * c) for c in wall)
        to.polygon([(0, row), (width, row), (width, row + 1), (0, row + 1)], color)
    to.polygon([(0, 284), (width, 284), (width, 294), (0, 294)], (230, 222, 206))
    return to.image.filter(ImageFilter.GaussianBlur(2 * FINE))


def draw_room(time, backdrop, grain):
    """One picture: the strings swing, the clock shakes."""
    to = Canvas(SIZE)
    to.image.paste(backdrop)
    beeping = time >= TURN and is_beeping(time % TURN)
    draw_clock(to, 120 + (1.5 * np.sin(60 * time) if beeping else 0), 120, time)
    draw_guitar(to, 350, 244, 1.6 * np.sin(70 * time) if time < TURN else 0.0)
    return photograph(to.image, grain)


def pluck(hz, seconds, rng):
    """A string, as Karplus and Strong make it: noise that goes round and grows dull."""
    ring, out = list(rng.uniform(-1, 1, int(RATE / hz))), []
    for k in range(int(seconds * RATE)):
        here, after = k % len(ring), (k + 1) % len(ring)
        out.append(ring[here])
        ring[here] = 0.498 * (ring[here] + ring[after])
    return np.array(out)


def play(seconds, rng):
    """A slow melody on a guitar."""
    tune = np.zeros(int((seconds + 2) * RATE))
    for k, hz in enumerate((196, 247, 294, 392, 294)):
        note, begin = pluck(hz, 1.5, rng), int((0.05 + 0.55 * k) * RATE)
        tune[begin : begin + len(note)] += 0.3 * note
    return tune[: int(seconds * RATE)]


def is_beeping(time):
    """Four beeps, then a rest."""
    return time % 1 < 0.62 and time % 1 % 0.16 < 0.08


def beep(seconds):
    """An alarm clock."""
    time = np.arange(int(seconds * RATE)) / RATE
    gate = np.array([is_beeping(t) for t in time], float)
    return 0.2 * np.sign(np.sin(2 * np.pi * 2700 * time)) * gate


def make(scene, parts, rng):
    """All pictures, the sound, and pictures per second."""
    sound = np.concatenate(parts)
    sound = (sound + rng.normal(0, 0.001, len(sound))).astype(np.float32)
    times = [k / FPS for k in range(int(TURN * len(parts) * FPS))]
    return [scene(time) for time in times], sound, FPS


def make_street():
    """The bird and the car."""
    rng = np.random.default_rng(1)
    backdrop, grain = draw_backdrop(np.random.default_rng(3)), draw_grain(rng)
    return make(lambda time: draw_scene(time, backdrop, grain), [sing(TURN, rng), honk(TURN)], rng)


def make_room():
    """The guitar and the alarm clock."""
    rng = np.random.default_rng(1)
    backdrop, grain = draw_wall(), draw_grain(rng)
    return make(lambda time: draw_room(time, backdrop, grain), [play(TURN, rng), beep(TURN)], rng)
