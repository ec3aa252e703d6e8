package command

import (
	"io"
	"strings"
	"testing"
)

// TestWhatIsMisspeltIsSuggested: the errors for unknown commands, flags and controllers suggest
// similar ones, and say where all of them are listed.
func TestWhatIsMisspeltIsSuggested(t *testing.T) {
	t.Setenv("KUBECONFIG", "/dev/null")
	for args, want := range map[string]string{
		"foo":                                    `there is no command "foo"; millrace --help lists them`,
		"histroy":                                `there is no command "histroy"; did you mean history? millrace --help lists them`,
		"whynot":                                 `there is no command "whynot"; did you mean why-not? millrace --help lists them`,
		"get pods --namspace=x":                  "unknown flag: --namspace; did you mean --namespace? millrace get --help lists them",
		"run --controler=x":                      "unknown flag: --controler; did you mean --controllers? millrace run --help lists them",
		"reconcilers --kubeconfig=x":             "unknown flag: --kubeconfig, which is of millrace watcher and writer",
		"run --controllers=deployment-controler": `read --controllers: "deployment-controler" is not in the list of known controllers; did you mean deployment-controller?`,
		"run --controllers=*,-replicset":         `read --controllers: "replicset" is not in the list of known controllers; did you mean replicaset?`,
		"run --shadow=deploymen":                 `read --shadow: "deploymen" is not in the list of known controllers; did you mean deployment or deployment-controller?`,
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(args))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("millrace %s: %v\nwant %s", args, err, want)
		}
	}
}

// TestTheHelpListsTheControllers: as kube-controller-manager's does.
func TestTheHelpListsTheControllers(t *testing.T) {
	usage := newRun().Flags().Lookup("controllers").Usage
	for _, name := range []string{"deployment-controller", "replicaset-controller"} {
		if !strings.Contains(usage, name) {
			t.Errorf("--controllers does not list %s: %s", name, usage)
		}
	}
}
