package controllerflags

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Choice are the selected controllers: those that act, and those in shadow.
type Choice struct {
	Acting, Looking []reconcile.Any
	// Leased tells which of those that act do so only while Millrace holds a Lease, and are in shadow
	// otherwise; nil: none.
	Leased func(controller string) bool
}

// Compared are the controllers that are in shadow, always or at times.
func (c Choice) Compared() []reconcile.Any {
	all := slices.Clone(c.Looking)
	for _, one := range c.Acting {
		if c.Leased != nil && c.Leased(one.Describe().Name) {
			all = append(all, one)
		}
	}
	return all
}

// All are both; the watcher watches the kinds of all of them.
func (c Choice) All() []reconcile.Any { return slices.Concat(c.Acting, c.Looking) }

// Names are the names of the acting controllers.
func (c Choice) Names() (names []string) {
	for _, one := range c.Acting {
		names = append(names, one.Describe().Name)
	}
	return names
}

// Divide separates the controllers in shadow, those of --shadow, from those that act.
//
// Errors: --shadow is invalid, or names a controller that was not selected.
func Divide(chosen []reconcile.Any, shadow []string, config controllers.Config) (Choice, error) {
	if len(shadow) == 0 {
		return Choice{Acting: chosen}, nil
	}
	looking, err := controllers.Select(shadow, config)
	if err != nil {
		return Choice{}, fmt.Errorf("read --shadow: %w", err)
	}
	for _, item := range shadow {
		e, known := controllers.Find(strings.TrimSpace(item))
		if known && !includes(chosen, e.Name) {
			return Choice{}, fmt.Errorf("read --shadow: %s is not among the --controllers: name it there too", e.Name)
		}
	}
	var c Choice
	for _, one := range chosen {
		if includes(looking, one.Describe().Name) {
			c.Looking = append(c.Looking, one)
		} else {
			c.Acting = append(c.Acting, one)
		}
	}
	return c, nil
}

func includes(list []reconcile.Any, name string) bool {
	return slices.ContainsFunc(list, func(c reconcile.Any) bool { return c.Describe().Name == name })
}

// ChooseFor selects the controllers of a process that has a kubeconfig.
//
// Errors: as Choose; the certificates of the kubeconfig cannot be published.
func (o *Options) ChooseFor(config *rest.Config) (Choice, error) {
	if err := o.Trust(config); err != nil {
		return Choice{}, err
	}
	return o.Choose()
}

// Choose selects the controllers that the flags ask for. It logs those that are off because
// a flag is not set, and those that only a cloud-controller-manager runs.
//
// Upstream: cmd/kube-controller-manager/app, BuildController, for the words of the latter.
//
// Errors: as Pick.
func (o *Options) Choose() (Choice, error) {
	chosen, lacking, err := o.Pick()
	if err != nil {
		return Choice{}, err
	}
	for _, e := range lacking {
		klog.Background().Info("Controller is off because a flag is not set", "controller", e.Name, "flag", "--"+e.Needs)
	}
	for _, e := range controllers.Skipped(o.selection()) {
		klog.Background().Info("Skipping a cloud provider controller", "controller", e.Name)
	}
	o.Chosen = chosen
	return o.Chosen, nil
}

// Pick is Choose without logs and without setting Chosen. lacking are the controllers that are off because a flag is not set.
//
// Errors: a flag is invalid, or names a controller that there is not.
func (o *Options) Pick() (chosen Choice, lacking []controllers.Entry, err error) {
	config, err := o.Config()
	if err != nil {
		return Choice{}, nil, err
	}
	all, err := controllers.Select(o.selection(), config)
	if err != nil {
		return Choice{}, nil, fmt.Errorf("read --controllers: %w", err)
	}
	chosen, err = Divide(all, o.Shadow, config)
	return chosen, controllers.Lacking(o.selection(), config), err
}
