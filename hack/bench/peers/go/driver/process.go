package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A tick of the processor times in /proc, on Linux.
const tick = 10 * time.Millisecond

// Processor time of a process with all of its threads.
func processorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may have blanks.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// Resident memory and its peak since the process began, in MB.
func memory(pid int) (resident, peak float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kilobytes, _ := strconv.ParseFloat(fields[1], 64)
		switch fields[0] {
		case "VmRSS:":
			resident = kilobytes / 1024
		case "VmHWM:":
			peak = kilobytes / 1024
		}
	}
	return resident, peak, nil
}

// How many files a process has open, and how many of them are established TCP connections.
func descriptors(pid int) (all, connections int, err error) {
	established, err := establishedSockets(pid)
	if err != nil {
		return 0, 0, err
	}
	directory := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(directory)
	if err != nil {
		return 0, 0, err
	}
	for _, entry := range entries {
		// It may be closed meanwhile.
		target, err := os.Readlink(directory + "/" + entry.Name())
		if err != nil {
			continue
		}
		all++
		if established[target] {
			connections++
		}
	}
	return all, connections, nil
}

// The established TCP sockets in the network that a process sees, as the links in /proc name them.
func establishedSockets(pid int) (map[string]bool, error) {
	sockets := map[string]bool{}
	for _, family := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, family))
		if err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		for _, line := range strings.Split(string(text), "\n") {
			if fields := strings.Fields(line); len(fields) > 9 && fields[3] == "01" {
				sockets["socket:["+fields[9]+"]"] = true
			}
		}
	}
	return sockets, nil
}

// A controller that runs.
type process struct {
	command *exec.Cmd
	ended   chan struct{}
	log     string
}

// Starts a controller that ends with the driver at the latest.
func start(command []string, log string) (*process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	p := &process{exec.Command(command[0], command[1:]...), make(chan struct{}), log}
	p.command.Stdout, p.command.Stderr = output, output
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.command.Wait()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) pid() int { return p.command.Process.Pid }

// The error of a controller that ended by itself.
func (p *process) failure() error {
	text, _ := os.ReadFile(p.log)
	return fmt.Errorf("the controller ended (%v); the end of its log:\n%s", p.command.ProcessState, text[max(0, len(text)-2000):])
}

// Ends the controller in order, by force after half a minute.
func (p *process) stop() {
	if p == nil {
		return
	}
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		_ = p.command.Process.Kill()
		<-p.ended
	}
}

const (
	window      = 250 * time.Millisecond
	quietWindow = 2 * time.Second
)

// Waits until controller and server have done next to nothing for two seconds; returns when they last did something, and
// whether they came to rest within the limit.
func atRest(ctx context.Context, p *process, server int, limit time.Duration) (time.Time, bool, error) {
	deadline := time.Now().Add(limit)
	lastBusy := time.Now()
	var before [2]time.Duration
	for first := true; ; first = false {
		var busy bool
		for i, check := range []struct {
			pid   int
			limit time.Duration
		}{{p.pid(), window / 25}, {server, window / 3}} {
			used, err := processorTime(check.pid)
			if err != nil {
				return lastBusy, false, err
			}
			busy = busy || (!first && used-before[i] > check.limit)
			before[i] = used
		}
		now := time.Now()
		if busy {
			lastBusy = now
		}
		if now.Sub(lastBusy) >= quietWindow {
			return lastBusy, true, nil
		}
		if now.After(deadline) {
			logf("  not at rest after %v; going on", limit)
			return lastBusy, false, nil
		}
		if err := sleep(ctx, p, window); err != nil {
			return lastBusy, false, err
		}
	}
}

// Sleeps while the controller lives.
func sleep(ctx context.Context, p *process, duration time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-p.ended:
		return p.failure()
	case <-time.After(duration):
		return nil
	}
}
