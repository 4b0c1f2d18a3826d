// Groups the commits since the last tag by type. Runs in the sandbox: no network, no files, only ctx.
async function run(ctx, inputs) {
  const limit = Math.max(1, Math.min(Number(inputs.limit) || 200, 1000));
  const described = await ctx.tool("bash", { command: "git describe --tags --abbrev=0" });
  const tag = described.exitCode === 0 ? described.output.trim() : null;
  const range = tag === null ? "HEAD" : JSON.stringify(tag + "..HEAD");
  const log = await ctx.tool("bash", { command: `git log --max-count=${limit} --format="%h %s" ${range}` });
  if (log.exitCode !== 0) {
    return { summary: "git log failed", tag, error: log.output };
  }

  const groups = {};
  let part = "none";
  for (const line of log.output.split("\n").filter((each) => each.trim() !== "")) {
    const [, hash, subject] = /^(\S+) (.*)$/.exec(line) ?? [null, "", line];
    const [, type, bang] = /^(\w+)(?:\([^)]*\))?(!?):/.exec(subject) ?? [null, "other", ""];
    (groups[type] ??= []).push({ hash, subject });
    part = larger(part, bang === "!" ? "major" : type === "feat" ? "minor" : type === "docs" ? "none" : "patch");
  }
  return { summary: `next release: ${part}`, tag, part, groups };
}

function larger(one, other) {
  const order = ["none", "patch", "minor", "major"];
  return order.indexOf(one) >= order.indexOf(other) ? one : other;
}
