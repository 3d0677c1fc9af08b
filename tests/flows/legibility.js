// Every visible text whose contrast with what lies behind it is below WCAG AA, and how many there are.
(() => {
  const channels = (color) => {
    const [red, green, blue, alpha = 1] = color.match(/[\d.]+/g).map(Number);
    return { red, green, blue, alpha };
  };
  const over = (top, below) => ({
    red: top.red * top.alpha + below.red * (1 - top.alpha),
    green: top.green * top.alpha + below.green * (1 - top.alpha),
    blue: top.blue * top.alpha + below.blue * (1 - top.alpha),
    alpha: 1,
  });
  const linear = (value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  };
  const luminance = ({ red, green, blue }) => 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const color = channels(getComputedStyle(at).backgroundColor);
      layers.push(color);
      if (color.alpha === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), { red: 255, green: 255, blue: 255, alpha: 1 });
  };
  const illegible = [];
  let texts = 0;
  const judge = (element, style, text) => {
    const below = behind(element);
    const [one, other] = [luminance(over(channels(style.color), below)), luminance(below)];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    texts += 1;
    if (ratio < (large ? 3 : 4.5)) illegible.push(`${text.trim().slice(0, 40)}: ${ratio.toFixed(2)}`);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    judge(element, getComputedStyle(element), walker.currentNode.data);
  }
  for (const field of document.querySelectorAll("[placeholder]")) {
    if (field.checkVisibility()) judge(field, getComputedStyle(field, "::placeholder"), field.placeholder);
  }
  return { texts, illegible };
})()
