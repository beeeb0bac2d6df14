package cluster

import (
	"context"
	"fmt"
	"os"
)

// AddProgram adds another program, such as a manager, to the cluster's processes, without starting it: from then on
// StartComponent, Kill, StopComponent, Log and Stop serve it as any component, and it doesn't outlive this program
// either. ready gives nil once the program does its work; its context is that of StartComponent. A name can be added
// again once its program is stopped, to change the arguments.
func (c *Cluster) AddProgram(name Component, path string, args []string, ready func(context.Context) error) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("add program %s: %w", name, err)
	}
	c.processesMu.Lock()
	defer c.processesMu.Unlock()
	if p := c.processes[name]; p != nil && p.pid() != 0 {
		return fmt.Errorf("add program %s: it runs already", name)
	}
	c.processes[name] = &process{
		name: name, path: path, args: args, ready: ready,
		pidFile: c.path("run", string(name)+".pid"), logFile: c.Log(name),
	}
	return nil
}
