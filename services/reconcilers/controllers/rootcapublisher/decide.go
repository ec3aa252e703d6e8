package rootcapublisher

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

func decide(v View, _ time.Time) reconcile.Decision {
	switch {
	case v.Published != nil && v.right():
		return reconcile.Nothing("the ConfigMap is up to date")
	case v.Published != nil:
		return reconcile.Do("the ConfigMap is not up to date", reconcile.Update(kinds.ConfigMaps.Kind, v.righted()))
	case v.Terminating:
		return reconcile.Nothing("the namespace is being deleted")
	default:
		return reconcile.Do("not published in the namespace yet",
			reconcile.Create(kinds.ConfigMaps.Kind, v.Namespace, configMap, reconcile.Body(v.fresh())))
	}
}

// right compares the data exactly but accepts any description, so that an
// administrator may write another.
func (v View) right() bool {
	return maps.Equal(v.Published.Data, v.data()) && v.Published.Annotations[annotation] != ""
}

func (v View) righted() *corev1.ConfigMap {
	righted := v.Published.DeepCopy()
	righted.Data = v.data()
	metav1.SetMetaDataAnnotation(&righted.ObjectMeta, annotation, description)
	return righted
}

func (v View) fresh() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotation: description}},
		Data:       v.data(),
	}
}

func (v View) data() map[string]string { return map[string]string{certificate: v.Bundle} }
