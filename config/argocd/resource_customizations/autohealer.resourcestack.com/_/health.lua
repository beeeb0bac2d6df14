-- Every kind of the group keeps its status by kstatus, so one script serves all. Ready is False while somebody must change something,
-- which Stalled says, and Unknown while the manager is at it. A policy that only observes, is paused, or is held back by a limit or its
-- breaker, is Healthy: what it heals needn't be. The script uses no library, since Argo CD opens hardly any.
local conditions = {}
for _, condition in ipairs((obj.status or {}).conditions or {}) do
  conditions[condition.type] = condition
end
local ready = conditions.Ready
if ready == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "Autohealer has not looked at this generation yet"}
end
local why = conditions.Stalled or ready
local message = why.reason .. ": " .. why.message
for _, name in ipairs({"BreakerOpen", "LimitReached"}) do -- there only while True, like Stalled
  if conditions[name] ~= nil then
    message = message .. " " .. name .. ": " .. conditions[name].message
  end
end
return {status = ({True = "Healthy", False = "Degraded", Unknown = "Progressing"})[ready.status], message = message}
