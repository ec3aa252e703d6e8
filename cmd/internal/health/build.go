package health

import (
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Build are the metrics of a process's build: millrace_build_info with the version of
// the program, and kubernetes_build_info with the Kubernetes release of its client
// libraries, as in upstream's components.
func Build(version string) []prometheus.Collector {
	info, _ := debug.ReadBuildInfo()
	release := kubernetes(info)
	major, minor, _ := strings.Cut(strings.TrimPrefix(release, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	commit, state, date := source(info)
	platform := runtime.GOOS + "/" + runtime.GOARCH
	return []prometheus.Collector{
		constant("millrace_build_info", "1, labelled with the version, revision and Go version of this program.", prometheus.Labels{
			"version": version, "revision": commit, "goversion": runtime.Version(),
		}),
		constant("kubernetes_build_info", "1, labelled with the release of Kubernetes whose libraries this program was built with.", prometheus.Labels{
			"major": major, "minor": minor, "git_version": release, "git_commit": commit, "git_tree_state": state,
			"build_date": date, "go_version": runtime.Version(), "compiler": runtime.Compiler, "platform": platform,
		}),
	}
}

func constant(name, help string, labels prometheus.Labels) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return 1 })
}

// kubernetes is the Kubernetes release of a program's client library; empty
// without one.
func kubernetes(info *debug.BuildInfo) string {
	if info == nil {
		return ""
	}
	for _, dependency := range info.Deps {
		if version, ok := strings.CutPrefix(dependency.Version, "v0."); ok && dependency.Path == "k8s.io/client-go" {
			return "v1." + version
		}
	}
	return ""
}

// source is the commit that a program was built from, whether the tree had changes
// on top of it, and the commit's time; empty if the build does not record them.
func source(info *debug.BuildInfo) (commit, state, date string) {
	if info == nil {
		return "", "", ""
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.time":
			date = s.Value
		case "vcs.modified":
			state = map[string]string{"true": "dirty", "false": "clean"}[s.Value]
		}
	}
	return commit, state, date
}
