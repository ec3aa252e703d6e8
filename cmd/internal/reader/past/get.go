package past

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/resolve"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/fields"
)

// ErrDoubt: the command has printed an answer that may be incomplete according to the record.
var ErrDoubt = errors.New("the answer may not be whole")

// list is the answer to get: kubectl's List, with the doubts about its completeness.
type list struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ListMeta `json:"metadata"`
	Items           []fields.Tree   `json:"items"`
	At              time.Time       `json:"at"`
	Whole           bool            `json:"whole"`
	Doubts          []string        `json:"doubts,omitempty"`
}

// getting are the flags of get.
type getting struct {
	at       string
	every    bool
	selector string
}

func newGet() *cobra.Command {
	g := getting{}
	return session.Program{
		Use: "get KIND[,KIND...] [NAME...]|KIND/NAME...|all", Short: "Show objects as they were at a moment",
		Long: `Shows objects, or all objects of some kinds in one or all namespaces, as they were at a
moment: a duration ago (10m, 2d), a time (15:04:05, 2026-01-02T15:04:05Z), or a
resourceVersion (default: now). "all" means the same kinds as for kubectl. The number of
objects of a kind is compared with the census of that moment. If objects are missing, or
the moment is within a gap, the command says so and exits with an error after the answer.

-o json and yaml print a single named object as itself and several objects as a List,
like kubectl; -o jsonpath is that of kubectl.`,
		Example: "  millrace get pods --at=10m\n  millrace get deploy web --at=15:04:05 -o yaml\n  millrace get rs -A --at=81723\n" +
			"  millrace get all -l app=web -o wide\n  millrace get deploy,cm -o name\n  millrace get deploy/web -o jsonpath='{.spec.replicas}'",
		Args:    cobra.MinimumNArgs(1),
		Outputs: []string{"table", "wide", "name", "json", "yaml", "jsonpath="},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&g.at, "at", g.at, "`moment`: a duration ago, a time, or a resourceVersion (default: now)")
			f.BoolVarP(&g.every, "all-namespaces", "A", g.every, "objects of all namespaces")
			f.StringVarP(&g.selector, "selector", "l", g.selector, "label `selector`, such as app=web or 'tier in (a,b)'")
		},
		Run: g.run,
	}.Command()
}

func (g *getting) run(ctx context.Context, s *session.Session, args []string) error {
	when, err := record.ParseMoment(g.at, s.Now())
	if err != nil {
		return fmt.Errorf("read --at: %w", err)
	}
	chosen, err := labels.Parse(g.selector)
	if err != nil {
		return fmt.Errorf("read --selector: %w", err)
	}
	write, err := toPrinter(s.Output)
	if err != nil {
		return err
	}
	states, named, err := g.states(ctx, s, args, when)
	if err != nil {
		return err
	}
	var all []item
	var doubts []string
	for _, state := range states {
		some, err := show(state, chosen)
		if err != nil {
			return err
		}
		if tabular := s.Output == "table" || s.Output == "wide"; tabular {
			if err := authors(ctx, s.Bus, some); err != nil {
				return err
			}
		}
		all = append(all, some...)
		for _, doubt := range state.Doubts {
			if len(states) > 1 {
				doubt = string(state.Kind.Name) + ": " + doubt
			}
			doubts = append(doubts, doubt)
		}
	}
	if len(all) == 0 && (s.Output == "table" || s.Output == "wide") {
		s.Paper.Line("%s", s.Paper.In(printer.Dim, g.nothing(ctx, s, states, when)))
	} else if err := write(s, answerOf(states, all, named, doubts), all); err != nil {
		return err
	}
	if len(doubts) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrDoubt, strings.Join(doubts, "; "))
}

// item is an object in the answer.
type item struct {
	kind  kinds.Kind
	entry record.Entry
	tree  fields.Tree
	by    record.Hand // only for tables
}

// authors sets the authors of the versions of some objects of one kind.
func authors(ctx context.Context, b bus.Archive, of []item) error {
	if len(of) == 0 {
		return nil
	}
	entries := make([]record.Entry, len(of))
	for i := range of {
		entries[i] = of[i].entry
	}
	hands, err := record.New(b).Authors(ctx, of[0].kind, entries)
	for i := range hands {
		of[i].by = hands[i]
	}
	return err
}

// show decodes the objects of a state that match a selector.
func show(state *record.State, chosen labels.Selector) (all []item, err error) {
	for _, e := range state.Entries {
		tree, err := fields.Of(state.Kind, e.Delta)
		if err != nil {
			return nil, err
		}
		object := unstructured.Unstructured{Object: tree}
		if chosen.Matches(labels.Set(object.GetLabels())) {
			all = append(all, item{kind: state.Kind, entry: e, tree: tree})
		}
	}
	return all, nil
}

// answerOf is the answer for -o json: the one named object, or a list.
func answerOf(states []*record.State, all []item, named bool, doubts []string) any {
	if named && len(all) == 1 {
		return all[0].tree
	}
	answer := list{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []fields.Tree{}, Whole: len(doubts) == 0, Doubts: doubts}
	for _, o := range all {
		answer.Items = append(answer.Items, o.tree)
	}
	for _, state := range states {
		if state.Time.After(answer.At) {
			answer.At = state.Time
		}
		answer.Whole = answer.Whole && state.Whole
	}
	return answer
}

// nothing is the message that no object was found, with the kinds, namespace and selector.
func (g *getting) nothing(ctx context.Context, s *session.Session, states []*record.State, when record.Moment) string {
	var names []string
	namespaced := false
	for _, state := range states {
		names = append(names, string(state.Kind.Name))
		namespaced = namespaced || state.Kind.Namespaced
	}
	text := "no " + strings.Join(names, ", ")
	switch {
	case g.every && namespaced:
		text += " in any namespace"
	case namespaced:
		text += " in namespace " + s.Namespace
	}
	if g.selector != "" {
		text += " with labels " + g.selector
	}
	if (when != record.Moment{}) {
		return text + " at " + when.String()
	}
	if namespaced && !g.every {
		text += s.NoNamespace(ctx, s.Namespace)
	}
	return text
}

// states are the objects that the arguments name, by kind; named is true if they name a
// single object.
func (g *getting) states(ctx context.Context, s *session.Session, args []string, when record.Moment) (states []*record.State, named bool, err error) {
	objects, words := objectsIn(args)
	if len(objects) > 0 {
		for _, o := range objects {
			kind, ref, err := s.Object(ctx, []string{o})
			if err != nil {
				return nil, false, err
			}
			state, err := record.New(s.Bus).One(ctx, kind, ref, when)
			if err != nil {
				return nil, false, err
			}
			states = append(states, state)
		}
		return states, len(objects) == 1, nil
	}
	of, err := kindsIn(ctx, s, words)
	if err != nil {
		return nil, false, err
	}
	namespace := s.Namespace
	if g.every {
		namespace = ""
	}
	states, err = statesAt(ctx, s, of, namespace, when)
	return states, false, err
}

// statesAt are the objects of some kinds at a moment. If there are several kinds, it leaves out
// those whose record does not reach back to the moment, with a note.
func statesAt(ctx context.Context, s *session.Session, of []kinds.Kind, namespace string, when record.Moment) (states []*record.State, err error) {
	var first error
	var notes []string
	for _, kind := range of {
		within := namespace
		if !kind.Namespaced {
			within = ""
		}
		state, err := record.New(s.Bus).At(ctx, kind, within, when)
		switch early := new(record.BeforeRecord); {
		case err == nil:
			states = append(states, state)
			continue
		case len(of) == 1 || !errors.As(err, &early) && !errors.Is(err, record.ErrNotThere):
			return nil, err
		}
		if first = cmp.Or(first, err); !errors.Is(err, record.ErrNotThere) { // no note for a kind with an empty log
			notes = append(notes, fmt.Sprintf("left out %s: %v", kind.Name, err))
		}
	}
	if len(states) == 0 {
		return nil, first
	}
	for _, note := range notes {
		s.Note("%s", note)
	}
	return states, nil
}

// objectsIn are the arguments that name objects, as KIND/NAME. If there are none, words are
// the arguments that name kinds.
func objectsIn(args []string) (objects, words []string) {
	if strings.Contains(args[0], "/") {
		return args, nil
	}
	words = strings.Split(args[0], ",")
	for _, name := range args[1:] {
		for _, word := range words {
			objects = append(objects, word+"/"+name)
		}
	}
	return objects, words
}

// usual are the kinds that kubectl means by "all".
var usual = []kinds.Name{
	kinds.Pods.Name, kinds.ReplicationControllers.Name, kinds.Services.Name, kinds.DaemonSets.Name, kinds.Deployments.Name, kinds.ReplicaSets.Name, kinds.StatefulSets.Name,
	kinds.HorizontalPodAutoscalers.Name, kinds.CronJobs.Name, kinds.Jobs.Name,
}

// kindsIn resolves words to kinds, without duplicates.
func kindsIn(ctx context.Context, s *session.Session, words []string) (of []kinds.Kind, err error) {
	have, err := s.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	for _, word := range words {
		if word == "all" {
			for _, name := range usual {
				if i := slices.IndexFunc(have, func(k kinds.Kind) bool { return k.Name == name }); i >= 0 {
					of = append(of, have[i])
				}
			}
			if len(of) == 0 {
				return nil, errors.New("the record has none of the kinds that all means")
			}
			continue
		}
		kind, err := resolve.Kind(word, have)
		if err != nil {
			return nil, err
		}
		of = append(of, kind)
	}
	var once []kinds.Kind
	for _, kind := range of {
		if !slices.ContainsFunc(once, func(k kinds.Kind) bool { return k.Name == kind.Name }) {
			once = append(once, kind)
		}
	}
	return once, nil
}

// ref is how kubectl writes an object: pod/web-1, deployment.apps/web.
func (o item) ref() string {
	name := strings.ToLower(o.kind.Kind)
	if group := o.kind.Name.Group(); group != "" {
		name += "." + group
	}
	return name + "/" + o.entry.Ref.Name
}
