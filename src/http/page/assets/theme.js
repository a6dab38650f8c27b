// Runs before the first paint, so that a chosen theme does not flash the other one.
(() => {
  const theme = localStorage.getItem("daoyou.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
