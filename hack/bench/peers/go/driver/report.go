package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Row is the medians of one controller in one scenario.
type Row struct {
	Scenario   string             `json:"scenario"`
	Title      string             `json:"title"`
	Controller string             `json:"controller"`
	Rounds     int                `json:"rounds"`
	Medians    map[string]float64 `json:"medians"`
	// To the medians of the controller that is compared with; a median of 0 has no ratio.
	Ratios map[string]float64 `json:"ratios,omitempty"`
}

// A column of the tables.
type column struct {
	name   string
	digits int
	value  func(Result) float64
}

var columns = []column{
	{"cpu s", 2, func(r Result) float64 { return r.CPU }},
	{"server s", 2, func(r Result) float64 { return r.ServerCPU }},
	{"ms each", 2, func(r Result) float64 {
		if r.Samples == 0 {
			return 0
		}
		return r.ServerCPU * 1000 / float64(r.Samples)
	}},
	{"etcd s", 2, func(r Result) float64 { return r.EtcdCPU }},
	{"rss MB", 1, func(r Result) float64 { return r.Resident }},
	{"peak MB", 1, func(r Result) float64 { return r.Peak }},
	{"fds", 0, func(r Result) float64 { return float64(r.Descriptors) }},
	{"conns", 0, func(r Result) float64 { return float64(r.Connections) }},
	{"wall s", 1, func(r Result) float64 { return r.Wall }},
	{"p50 ms", 1, func(r Result) float64 { return r.P50 }},
	{"p99 ms", 1, func(r Result) float64 { return r.P99 }},
	{"get", 0, func(r Result) float64 { return r.count(verbs("GET")) }},
	{"list", 0, func(r Result) float64 { return r.count(verbs("LIST", "WATCH")) }},
	{"create", 0, func(r Result) float64 { return r.count(verbs("POST")) }},
	{"update", 0, func(r Result) float64 { return r.count(verbs("PUT")) }},
	{"patch", 0, func(r Result) float64 { return r.count(verbs("PATCH", "APPLY")) }},
	{"delete", 0, func(r Result) float64 { return r.count(verbs("DELETE")) }},
	{"409", 0, func(r Result) float64 { return r.count(func(c Count) bool { return !c.isEvent() && c.Code == "409" }) }},
	{"errors", 0, func(r Result) float64 {
		return r.count(func(c Count) bool { return c.Code >= "400" && (c.isEvent() || c.Code != "409") })
	}},
	{"events", 0, func(r Result) float64 { return r.count(Count.isEvent) }},
	{"busy", 0, func(r Result) float64 {
		if r.Rested {
			return 0
		}
		return 1
	}},
}

func (c Count) isEvent() bool { return c.Resource == "events" }

// Requests of these verbs, events left out.
func verbs(names ...string) func(Count) bool {
	return func(c Count) bool { return !c.isEvent() && slices.Contains(names, c.Verb) }
}

func (r Result) count(matches func(Count) bool) float64 {
	total := 0
	for _, request := range r.Requests {
		if matches(request) {
			total += request.Count
		}
	}
	return float64(total)
}

func reportCommand(flags *flag.FlagSet, args []string) error {
	var plan Plan
	plan.addAmounts(flags)
	to := flags.String("to", "client-go", "the controller that ratios are to")
	setting := flags.String("setting", "", "a line about the run, for the JSON file")
	out := flags.String("json", "", "`file` for medians, ratios and the results of each round")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("report: one file of results")
	}
	results, err := readResults(flags.Arg(0))
	if err != nil {
		return err
	}
	rows := summarize(plan, results, *to)
	printTables(rows, *to)
	if *out == "" {
		return nil
	}
	text, err := json.MarshalIndent(map[string]any{"setting": *setting, "rows": rows, "results": results}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(*out, append(text, '\n'), 0o644)
}

func readResults(name string) ([]Result, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var results []Result
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var result Result
		if err := json.Unmarshal(lines.Bytes(), &result); err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	return results, lines.Err()
}

// Rows in the order of the scenarios, within one in the order in which the controllers first ran.
func summarize(plan Plan, results []Result, to string) []Row {
	var controllers []string
	for _, result := range results {
		if !slices.Contains(controllers, result.Controller) {
			controllers = append(controllers, result.Controller)
		}
	}
	var rows []Row
	for _, scenario := range scenarios {
		first := len(rows)
		for _, controller := range controllers {
			var of []Result
			for _, result := range results {
				if result.Scenario == scenario.name && result.Controller == controller {
					of = append(of, result)
				}
			}
			if len(of) == 0 {
				continue
			}
			row := Row{Scenario: scenario.name, Title: scenario.title(plan), Controller: controller, Rounds: len(of)}
			row.Medians = map[string]float64{}
			for _, column := range columns {
				row.Medians[column.name] = median(of, column.value)
			}
			rows = append(rows, row)
		}
		compare(rows[first:], to)
	}
	return rows
}

func median(results []Result, value func(Result) float64) float64 {
	var values []float64
	for _, result := range results {
		values = append(values, value(result))
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 0 {
		return (values[middle-1] + values[middle]) / 2
	}
	return values[middle]
}

// Sets the ratios of a scenario's rows; a row of a server with its controller manager compares with such a row.
func compare(rows []Row, to string) {
	for i := range rows {
		base := to
		if strings.HasSuffix(rows[i].Controller, managerSuffix) {
			base += managerSuffix
		}
		at := slices.IndexFunc(rows, func(row Row) bool { return row.Controller == base })
		if at < 0 {
			continue
		}
		rows[i].Ratios = map[string]float64{}
		for name, value := range rows[i].Medians {
			if of := rows[at].Medians[name]; of != 0 {
				rows[i].Ratios[name] = value / of
			}
		}
	}
}

// What hack/bench/peers.sh appends to a controller's name where kube-controller-manager runs.
const managerSuffix = "+manager"

func printTables(rows []Row, to string) {
	var header strings.Builder
	width := len("  to " + to + "'s")
	for _, row := range rows {
		width = max(width, len(row.Controller))
	}
	fmt.Fprintf(&header, "%-*s", width, "")
	for _, column := range columns {
		fmt.Fprintf(&header, "%9s", column.name)
	}
	title := ""
	for _, row := range rows {
		if row.Title != title {
			title = row.Title
			fmt.Printf("\n%s: %s\n%s\n", row.Scenario, title, header.String())
		}
		fmt.Printf("%-*s", width, row.Controller)
		for _, column := range columns {
			fmt.Printf("%9.*f", column.digits, row.Medians[column.name])
		}
		fmt.Println()
		if row.Ratios == nil || strings.TrimSuffix(row.Controller, managerSuffix) == to {
			continue
		}
		fmt.Printf("%-*s", width, "  to "+to+"'s")
		for _, column := range columns {
			ratio, found := row.Ratios[column.name]
			if !found {
				fmt.Printf("%9s", "-")
				continue
			}
			fmt.Printf("%8.2fx", ratio)
		}
		fmt.Println()
	}
}
