package node

// live is the configuration as it is now. What can change at run time is read here,
// what cannot is the same as in d.cfg. It is not to be changed.
func (d *daemon) live() *Config { return d.settings.Load() }
