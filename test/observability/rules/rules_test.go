package rules

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// scraped are the labels that the scrape adds.
var scraped = []string{"job", "instance", "namespace", "pod"}

// Rules and dashboards name only metrics and labels that exist.
func TestEveryMetricThatIsNamedIsThere(t *testing.T) {
	known, used := metrics(t), panels(t)
	for _, r := range rules(t) {
		used = append(used, expression{r.Alert + r.Record, r.Expr})
	}
	for _, e := range used {
		parsed, err := promql.ParseExpr(e.text)
		if err != nil {
			t.Errorf("%s: %v", e.where, err)
			continue
		}
		var has []string
		parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
			v, ok := n.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			of, there := known[v.Name]
			if !there {
				t.Errorf("%s names %s, which docs/metrics.md does not list", e.where, v.Name)
			}
			has = append(has, of...)
			for _, m := range v.LabelMatchers {
				if m.Name != labels.MetricName && !slices.Contains(append(scraped, of...), m.Name) {
					t.Errorf("%s: %s has no label %s", e.where, v.Name, m.Name)
				}
			}
			return nil
		})
		for _, by := range grouping(parsed) {
			if !slices.Contains(append(scraped, has...), by) {
				t.Errorf("%s groups by %s, which none of its metrics has", e.where, by)
			}
		}
	}
}

func grouping(e parser.Expr) (by []string) {
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok && !a.Without {
			by = append(by, a.Grouping...)
		}
		return nil
	})
	return by
}

// Every alert has a severity, a summary and a link to its entry in the runbook, and the entry says what the
// alert means, how to check, and what to do.
func TestEveryAlertHasItsEntryInTheRunbook(t *testing.T) {
	entries := map[string]string{}
	for _, part := range strings.Split(read(t, docs+"runbook.md"), "\n## ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		entries[strings.TrimSpace(name)] = text
	}
	alerts := map[string]bool{}
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		alerts[r.Alert] = true
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s has the severity %q", r.Alert, r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" || !strings.HasSuffix(r.Annotations["runbook_url"], "/docs/runbook.md#"+strings.ToLower(r.Alert)) {
			t.Errorf("%s has no summary, or its runbook_url is %q", r.Alert, r.Annotations["runbook_url"])
		}
		for _, part := range []string{"**Means**", "**Look**", "**Do**"} {
			if !strings.Contains(entries[r.Alert], part) {
				t.Errorf("the entry of %s in the runbook has no %s", r.Alert, part)
			}
		}
	}
	for name, text := range entries {
		if strings.HasPrefix(name, "Millrace") && !alerts[name] {
			t.Errorf("the runbook has an entry of %s, which is no alert", name)
		}
		for _, m := range regexp.MustCompile("`(millrace_[a-z_]+)").FindAllStringSubmatch(text, -1) {
			if _, ok := metrics(t)[m[1]]; !ok {
				t.Errorf("the entry of %s names %s, which docs/metrics.md does not list", name, m[1])
			}
		}
	}
}

// The PodMonitor selects the pods of deployments/kubernetes by a label and a port that they all have.
func TestThePodMonitorFindsThePods(t *testing.T) {
	monitor, pods := read(t, deployments+"kubernetes/podmonitor.yaml"), read(t, deployments+"../kubernetes/services.yaml")
	if !strings.Contains(monitor, "matchLabels: {app.kubernetes.io/name: millrace}") || !strings.Contains(monitor, "- port: health\n") {
		t.Error("the PodMonitor selects by another label or port")
	}
	for _, service := range []string{"provisioner", "watcher", "watcher-other", "reconcilers", "writer"} {
		labels := "matchLabels: &" + service + " {app.kubernetes.io/name: millrace, app.kubernetes.io/component: " + service + "}"
		if !strings.Contains(pods, labels) {
			t.Errorf("the pods of the %s have other labels", service)
		}
	}
	if got := strings.Count(pods, "ports: [{name: health, containerPort: 10260}]"); got != 5 {
		t.Errorf("%d containers have the port, want 5", got)
	}
}

// The scrape configurations have the port and the jobs that the rules name.
func TestScrapeConfigurations(t *testing.T) {
	for _, file := range []string{"prometheus/compose.yaml", "prometheus/kubernetes.yaml"} {
		var c struct {
			Global struct {
				ScrapeProtocols []string `yaml:"scrape_protocols"`
				Scrape          string   `yaml:"scrape_interval"`
				Evaluate        string   `yaml:"evaluation_interval"`
			}
			RuleFiles []string         `yaml:"rule_files"`
			Jobs      []map[string]any `yaml:"scrape_configs"`
		}
		unmarshal(t, deployments+file, &c)
		if len(c.Global.ScrapeProtocols) == 0 || !strings.HasPrefix(c.Global.ScrapeProtocols[0], "OpenMetrics") {
			t.Errorf("%s asks for no OpenMetrics, so it gets no exemplars", file)
		}
		if !slices.Equal(c.RuleFiles, []string{"rules.yaml"}) {
			t.Errorf("%s has the rules %v", file, c.RuleFiles)
		}
		for _, job := range c.Jobs {
			if name := job["job_name"].(string); !strings.HasPrefix(name, "millrace") {
				t.Errorf("%s has the job %s, of which the rules do not know", file, name)
			}
		}
	}
}
