// Loads a control plane with Foos, measures the controller that serves them, and reports: see ../../README.md.
//
//	driver run [FLAG...] -- CONTROLLER [ARGUMENT...]   one controller on one fresh server; results go to --results
//	driver report [FLAG...] RESULTS                    tables of medians, ratios and a JSON file
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := obey(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}

func obey(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no command; commands: run report")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	switch args[0] {
	case "run":
		return runCommand(ctx, flags, args[1:])
	case "report":
		return reportCommand(flags, args[1:])
	default:
		return fmt.Errorf("unknown command %q; commands: run report", args[0])
	}
}

// Plan is what one run does.
type Plan struct {
	Name        string
	Round       int
	Scenarios   map[string]bool
	Size        int
	Burst       int
	Paced       int
	Changes     int
	SlowChanges int
	Starts      int
	Rest        time.Duration
	Writers     int
	Adopt       bool

	Kubeconfig string
	Server     int
	Etcd       int
	Log        string
	Results    string
	Profiles   string
	Command    []string
}

// How much is done, for running and for naming what was run.
func (p *Plan) addAmounts(flags *flag.FlagSet) {
	flags.IntVar(&p.Size, "size", 20000, "Foos of the large scenarios")
	flags.IntVar(&p.Burst, "burst", 3000, "Foos created at full rate")
	flags.IntVar(&p.Paced, "paced", 3000, "Foos created at 100/s")
	flags.IntVar(&p.Changes, "changes", 1000, "changes at 100/s")
	flags.IntVar(&p.SlowChanges, "slow-changes", 300, "changes at 20/s")
	flags.IntVar(&p.Starts, "starts", 1, "starts of the controller in cold and cold-changed each")
	flags.DurationVar(&p.Rest, "rest", time.Minute, "length of the scenario rest")
}

func runCommand(ctx context.Context, flags *flag.FlagSet, args []string) error {
	var plan Plan
	flags.StringVar(&plan.Name, "name", "", "the controller's name in the tables")
	flags.IntVar(&plan.Round, "round", 1, "number of the round")
	scenarios := flags.String("scenarios", "", "comma-separated parts: "+strings.Join(scenarioNames(), " "))
	plan.addAmounts(flags)
	flags.IntVar(&plan.Writers, "writers", 8, "requests at once at full rate")
	flags.BoolVar(&plan.Adopt, "adopt", false, "take over the Foos that an earlier run has left on this server")
	flags.StringVar(&plan.Kubeconfig, "kubeconfig", "", "kubeconfig `file`")
	flags.IntVar(&plan.Server, "server-pid", 0, "process id of kube-apiserver")
	flags.IntVar(&plan.Etcd, "etcd-pid", 0, "process id of etcd")
	flags.StringVar(&plan.Log, "log", "", "where the controller's output goes")
	flags.StringVar(&plan.Results, "results", "", "`file` to append results to, a line of JSON each")
	flags.StringVar(&plan.Profiles, "profiles", "", "`directory` for processor profiles of the API server, some seconds each")
	if err := flags.Parse(args); err != nil {
		return err
	}
	plan.Command = flags.Args()
	if len(plan.Command) == 0 {
		return fmt.Errorf("run: no controller to start")
	}
	plan.Scenarios = map[string]bool{}
	for _, name := range strings.Split(*scenarios, ",") {
		plan.Scenarios[name] = true
	}
	return run(ctx, plan)
}
