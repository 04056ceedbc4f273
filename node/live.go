package node

// live is the configuration as it is now. Settings that can change at run time must be
// read here; the others are the same as in d.cfg. The caller must not change it.
func (d *daemon) live() *Config { return d.settings.Load() }
