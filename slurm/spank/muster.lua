-- Muster's part of job_submit.lua: it takes what users ask for with --rgpu, --rcuda-mode, --gpu-reach,
-- --gpu-beyond, --mapping, --muster-or and --gres=rgpu:N, refuses what makes no sense with a sentence, writes the request into the job's
-- comment in the words of Muster's driver, and holds the job until the driver places it.
-- It keeps users from releasing or placing such jobs themselves.
--
-- "muster slurm setup" writes this file and the lines of job_submit.lua that use it. What differs
-- between clusters is in the table settings: change it with "muster slurm setup", not here.
local settings = {
  admins = { [0] = true }, -- uids that may release and place jobs
  all = false,             -- whether all jobs are Muster's, or those that ask for GPUs
  partitions = {},         -- partitions all of whose jobs are Muster's
  own_gpus = false,        -- whether jobs that ask for Slurm's own GPUs (--gres=gpu) are Muster's, too
  licence = nil,           -- a licence of which a job takes one for each whole GPU
  gres = false,            -- whether the cluster has a generic resource rgpu
  alive = nil,             -- a file with the time of the driver's latest round (muster slurm drive --alive)
}

local muster = { settings = settings }
local MAX_GPUS = 4096

local function refuse(...)
  slurm.log_user("muster: " .. string.format(...))
  return nil
end

-- words of the plug-in, or of whoever sends SPANK variables over REST.
local function asked_for(job)
  for i = 0, (job.spank_job_env_size or 0) - 1 do
    local text = string.match(job.spank_job_env[i] or "", "^S?P?A?N?K?_?MUSTER_REQUEST=(.*)$")
    if text then return text end
  end
end

-- is_escaped says whether a value has only what words may have.
local function is_escaped(value)
  return not string.find(value, "[^\33-\126]") and not string.find(string.gsub(value, "%%%x%x", ""), "%%")
end

local reaches = { device = true, node = true, cluster = true }

-- read_words reads rgpu=, mem=, mode=, reach=, beyond=, map= and or= into a request.
local function read_words(text, request)
  for word in string.gmatch(text, "%S+") do
    local key, value = string.match(word, "^(%l+)=(.+)$")
    if key == "rgpu" and string.match(value, "^[1-9]%d*$") and #value < 8 then
      request.gpus = tonumber(value)
    elseif key == "mem" and string.match(value, "^[1-9]%d*M$") and #value < 14 then
      request.memory = tonumber(string.sub(value, 1, -2))
    elseif key == "mode" and (value == "excl" or value == "shar") then
      request.mode = value
    elseif key == "reach" and reaches[value] then
      request.reach = value
    elseif key == "beyond" and (value == "all" or value == "0M" or string.match(value, "^[1-9]%d*M$") and #value < 14) then
      request.beyond = value
    elseif key == "map" and #value < 1024 and is_escaped(value) then
      request.mapping = value
    elseif key == "or" and is_escaped(value) then
      table.insert(request.alternatives, value)
    else
      return refuse("the request has the word \"%s\", which is not known: use --rgpu, --rcuda-mode, --gpu-reach, --gpu-beyond, --mapping and --muster-or", string.sub(word, 1, 40))
    end
  end
  return true
end

local units = { [""] = 1, M = 1, G = 1024, T = 1024 * 1024 }

-- read_item reads rgpu, rgpu:N or rgpu:N:MEM of --gres into a request.
local function read_item(item, request)
  local rest = string.sub(item, #"rgpu" + 1)
  local count, memory = string.match(rest, "^:(%d+)$"), nil
  if rest == "" then count = "1" end
  if not count then count, memory = string.match(rest, "^:(%d+):(%w+)$") end
  if not count or #count > 7 or tonumber(count) < 1 then
    return refuse("--gres=%s: write how many GPUs, and the memory of each if shares will do, as --gres=rgpu:2 or --gres=rgpu:2:4G", item)
  end
  if request.gpus then
    return refuse("--gres=%s: the GPUs are asked for twice: use either --rgpu or --gres=rgpu:N", item)
  end
  request.gpus = tonumber(count)
  if not memory then return true end
  local number, unit = string.match(memory, "^([1-9]%d*)([MGTmgt]?)[iI]?[bB]?$")
  if not number or #number > 9 then
    return refuse("--gres=%s: write the memory of each GPU with its unit, as 512M, 4G or 1T; without a unit it is megabytes", item)
  end
  request.memory = tonumber(number) * units[string.upper(unit)]
  return true
end

-- read_gres takes rgpu out of what --gres says: it is Muster's and not the nodes'.
local function read_gres(job, request)
  local text = job.gres
  if type(text) ~= "string" or not string.find(text, "rgpu") then return true end
  local others, mine = {}, {}
  for item in string.gmatch(text, "[^,]+") do
    local bare = string.gsub(item, "^gres[:/]", "")
    if bare == "rgpu" or string.match(bare, "^rgpu:") then
      if not read_item(bare, request) then return nil end
      table.insert(mine, item)
    else
      table.insert(others, item)
    end
  end
  if #mine == 0 then return true end
  local batch = job.script ~= nil and job.script ~= ""
  if not batch and (request.memory or not settings.gres) then
    -- srun would ask for it once more when it starts its tasks.
    return refuse("srun and salloc take remote GPUs with --rgpu: write --rgpu=%d%s instead of --gres", request.gpus,
      request.memory and string.format(":%dM", request.memory) or "")
  end
  if batch then job.gres = table.concat(others, ",") end
  return true
end

-- asks_own says whether a job asks for GPUs that Slurm itself gives out.
local function asks_own(job)
  for _, field in ipairs({ "gres", "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task" }) do
    local text = job[field]
    for item in string.gmatch(type(text) == "string" and text or "", "[^,]+") do
      local name = string.match(string.gsub(item, "^gres[:/]", ""), "^[^:=]+")
      if name == "gpu" then return true end
    end
  end
  return false
end

-- check refuses what does not go together.
local function check(job, request)
  if request.gpus and asks_own(job) then
    return refuse("Slurm and Muster both give out GPUs: ask with either --rgpu or --gres=gpu (--gpus), not with both")
  end
  if request.gpus and request.gpus > MAX_GPUS then
    return refuse("%d GPUs: ask for 1 to %d", request.gpus, MAX_GPUS)
  end
  if not request.gpus and (request.mode or request.memory) then
    return refuse("--rcuda-mode is for remote GPUs: ask for them with --rgpu=N or --gres=rgpu:N")
  end
  -- An alternative may ask for the GPUs.
  if not request.gpus and #request.alternatives == 0 and (request.reach or request.beyond or request.mapping) then
    return refuse("%s is for remote GPUs: ask for them with --rgpu=N or --gres=rgpu:N",
      request.reach and "--gpu-reach" or request.beyond and "--gpu-beyond" or "--mapping")
  end
  if request.beyond and request.beyond ~= "0M" and #request.alternatives == 0 and (not request.memory or request.mode == "excl") then
    return refuse("--gpu-beyond: whole GPUs have no memory beyond them: ask for shares, as --rgpu=%d:4G", request.gpus)
  end
  if request.mode == "shar" and not request.memory then
    return refuse("--rcuda-mode=shar: say how much memory of each GPU, as --rgpu=%d:1G", request.gpus)
  end
  if request.memory and request.memory > 2 ^ 40 then
    return refuse("no GPU has %.0f MB of memory", request.memory)
  end
  return true
end

-- words writes a request as package slurm/words does.
local function words(request)
  local list = { "muster:req" }
  local function add(...) table.insert(list, string.format(...)) end
  if request.held then add("hold=user") end
  if request.gpus then add("rgpu=%d", request.gpus) end
  if request.memory then add("mem=%.0fM", request.memory) end
  if request.mode then add("mode=%s", request.mode) end
  if request.reach then add("reach=%s", request.reach) end
  if request.beyond then add("beyond=%s", request.beyond) end
  if request.mapping then add("map=%s", request.mapping) end
  for _, options in ipairs(request.alternatives) do add("or=%s", options) end
  return table.concat(list, " ")
end

-- cut returns a comment in front of Muster's words, and the words, which may be nil.
local function cut(comment)
  if type(comment) ~= "string" then return "", nil end
  local padded = " " .. comment .. " "
  local at = string.find(padded, " muster:req ", 1, true)
  if not at then return comment, nil end
  return string.sub(comment, 1, math.max(at - 2, 0)), string.sub(comment, at)
end

local function join(other, text)
  if other == "" then return text end
  return other .. " " .. text
end

local function manages(job, partitions)
  if settings.all then return true end
  if job.partition then
    for name in string.gmatch(job.partition, "[^,]+") do
      if settings.partitions[name] then return true end
    end
    return false
  end
  for name in pairs(settings.partitions) do
    local p = partitions and partitions[name]
    if p and p.flag_default == 1 then return true end
  end
  return false
end

-- is_away says whether the driver has not been at work for half a minute. Jobs that need none of
-- its GPUs are then left to Slurm's own scheduler.
local function is_away()
  if not settings.alive then return false end
  local file = io.open(settings.alive)
  local latest = file and file:read("*n")
  if file then file:close() end
  return not latest or os.time() - latest > 30
end

local function take_licence(job, request)
  if not settings.licence or not request.gpus or (request.memory and request.mode ~= "excl") then return end
  local own = string.format("%s:%d", settings.licence, request.gpus)
  job.licenses = (job.licenses and job.licenses ~= "") and (job.licenses .. "," .. own) or own
end

-- submit is called for each job that is submitted.
function muster.submit(job, partitions, uid)
  local request = { alternatives = {} }
  local text = asked_for(job)
  if text and not read_words(text, request) then return slurm.ERROR end
  if not read_gres(job, request) or not check(job, request) then return slurm.ERROR end
  local other, given = cut(job.admin_comment)
  given = given or select(2, cut(job.comment))
  if given and not settings.admins[uid] then
    refuse("the comment of a job cannot have the word muster:req: it is Muster's")
    return slurm.ERROR
  end
  if given then return slurm.SUCCESS end -- an administrator knows what is asked for
  -- Nodes may lend GPUs that Slurm gives out, too: only the driver can keep them apart.
  local own = settings.own_gpus and asks_own(job)
  if not request.gpus and not own and (is_away() or #request.alternatives == 0 and not manages(job, partitions)) then return slurm.SUCCESS end
  request.held = job.priority == 0
  job.admin_comment = join(other, words(request))
  job.priority = 0
  take_licence(job, request)
  return slurm.SUCCESS
end

-- without_hold takes the word of hold off the front of a user's comment; it returns both.
local function without_hold(comment)
  comment = type(comment) == "string" and comment or ""
  local word = string.match(comment, "^muster:held%f[ %z]") or string.match(comment, "^muster:released%f[ %z]")
  if not word then return comment, nil end
  return string.gsub(string.sub(comment, #word + 1), "^ ", ""), word
end

-- is_held says whether a job's user wants it held.
local function is_held(record, managed)
  local _, word = without_hold(record.comment)
  if word then return word == "muster:held" end
  return string.match(managed, "^muster:req hold=user") ~= nil
end

-- hold writes that the user wants a job held, or no longer does. Users cannot write the
-- administrators' comment, not even through this script: their own then begins with a word that
-- counts more than hold=user.
local function hold(job, record, held)
  local own = without_hold(record.comment)
  job.comment = (held and "muster:held" or "muster:released") .. (own ~= "" and " " .. own or "")
end

-- modify is called for each change of a job that somebody asks for.
function muster.modify(job, record, partitions, uid)
  if settings.admins[uid] then return slurm.SUCCESS end
  local _, managed = cut(record.admin_comment)
  -- Slurm itself keeps users from the administrators' comment. Where REST cannot write that (22.05)
  -- the driver's answer is in the other one.
  if job.comment and (select(2, cut(job.comment)) or select(2, cut(record.comment)) or select(2, without_hold(job.comment))) then
    refuse("the words muster:req, muster:held and muster:released in a comment are Muster's: leave them to it")
    return slurm.ERROR
  end
  if not managed then return slurm.SUCCESS end
  for _, field in ipairs({ "req_nodes", "licenses" }) do
    if job[field] ~= nil then
      refuse("Muster places this job: its %s cannot be changed; cancel it and submit it again", field == "req_nodes" and "nodes" or "licences")
      return slurm.ERROR
    end
  end
  if job.priority == nil or job.priority == slurm.NO_VAL then return slurm.SUCCESS end
  if job.priority == 0 then
    hold(job, record, true)
    return slurm.SUCCESS
  end
  if not is_held(record, managed) then
    refuse("the job waits for Muster, which starts it when its GPUs and nodes are free; squeue -O JobID,State,admin_comment:200 says why it waits")
    return slurm.ERROR
  end
  hold(job, record, false)
  job.priority = slurm.NO_VAL -- only the driver starts it
  return slurm.SUCCESS
end

return muster
