// Shows how long the agent still acts as the customer, and loads the page again when the time is up.
const shown = document.getElementById("countdown");
if (shown) {
  const until = Number(shown.dataset.until);
  const tick = () => {
    const left = Math.ceil(until - Date.now() / 1000);
    if (left <= 0) return setTimeout(() => location.reload(), 5000); // verifiers tolerate slow clocks
    shown.textContent = `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`;
    setTimeout(tick, 1000);
  };
  tick();
}
