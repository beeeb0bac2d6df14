package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// Role is what this program does in a process of its own: what is measured runs apart from its peers.
type Role func(ctx context.Context, task *json.Decoder) (result any, err error)

// RoleOf does something with a task that was given as JSON.
func RoleOf[T any](do func(context.Context, T) (any, error)) Role {
	return func(ctx context.Context, decoder *json.Decoder) (any, error) {
		var task T
		if err := decoder.Decode(&task); err != nil {
			return nil, fmt.Errorf("read the task: %w", err)
		}
		return do(ctx, task)
	}
}

// Play does a role: the task comes from standard input, the result goes to standard output, and the process lives on until whoever
// started it has enough.
func (r Role) Play(ctx context.Context) error {
	result, err := r(ctx, json.NewDecoder(os.Stdin))
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// Process plays a role.
type Process struct {
	command *exec.Cmd
	input   io.Closer
}

// StartRole starts a process, and returns when its result is there.
func StartRole(ctx context.Context, role string, task, result any) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, program, role)
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	p := &Process{command, input}
	if err := errors.Join(json.NewEncoder(input).Encode(task), json.NewDecoder(output).Decode(result)); err != nil {
		return nil, fmt.Errorf("%s: %w", role, errors.Join(err, p.End()))
	}
	return p, nil
}

// End ends the process.
func (p *Process) End() error { return errors.Join(p.input.Close(), p.command.Wait()) }

// ProcessorTime is that of the process until now; 0 on systems without /proc.
func (p *Process) ProcessorTime() time.Duration {
	spent, _ := processorTime(strconv.Itoa(p.command.Process.Pid))
	return spent
}

// RunRole has a process do something, and ends it.
func RunRole(ctx context.Context, role string, task, result any) error {
	p, err := StartRole(ctx, role, task, result)
	if err != nil {
		return err
	}
	return p.End()
}
