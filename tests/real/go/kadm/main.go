// The quota APIs through franz-go's kadm, against the broker that the argument names.
package main

import (
	"context"
	"errors"
	"log"
	"os"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kquota.test/clients/lines"
)

type client struct{ admin *kadm.Client }

func (c client) Describe(filter lines.Filter) lines.Answer {
	var components []kadm.DescribeClientQuotaComponent
	for _, one := range filter.Components {
		components = append(components, kadm.DescribeClientQuotaComponent{
			Type: one.Type, MatchName: one.Match, MatchType: kadm.QuotasMatchType(one.MatchType),
		})
	}
	described, err := c.admin.DescribeClientQuotas(context.Background(), filter.Strict, components)
	if err != nil {
		return lines.Failed(err)
	}
	var answer lines.Answer
	for _, one := range described {
		entity := lines.Entity{Entity: parts(one.Entity)}
		for _, value := range one.Values {
			entity.Values = append(entity.Values, lines.Valued(value.Key, value.Value))
		}
		answer.Entities = append(answer.Entities, entity)
	}
	return answer
}

func (c client) Alter(change lines.Change) lines.Answer {
	var entries []kadm.AlterClientQuotaEntry
	for _, one := range change.Alterations {
		var entry kadm.AlterClientQuotaEntry
		for _, part := range one.Entity {
			entry.Entity = append(entry.Entity, kadm.ClientQuotaEntityComponent{Type: part.Type, Name: part.Name})
		}
		for _, op := range one.Ops {
			entry.Ops = append(entry.Ops, kadm.AlterClientQuotaOp{
				Key: op.Key, Value: op.Number(), Remove: op.Value == nil,
			})
		}
		entries = append(entries, entry)
	}
	alter := c.admin.AlterClientQuotas
	if change.ValidateOnly {
		alter = c.admin.ValidateAlterClientQuotas
	}
	altered, err := alter(context.Background(), entries)
	if err != nil {
		return lines.Failed(err)
	}
	var answer lines.Answer
	for _, one := range altered {
		result := lines.Result{Entity: parts(one.Entity), Error: one.ErrMessage}
		var known *kerr.Error
		if errors.As(one.Err, &known) {
			result.Code = known.Code
		} else if one.Err != nil {
			return lines.Failed(one.Err)
		}
		answer.Results = append(answer.Results, result)
	}
	return answer
}

func parts(entity kadm.ClientQuotaEntity) []lines.Part {
	var found []lines.Part
	for _, one := range entity {
		found = append(found, lines.Part{Type: one.Type, Name: one.Name})
	}
	return found
}

func main() {
	kafka, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]))
	if err != nil {
		log.Fatal(err)
	}
	defer kafka.Close()
	lines.Serve(client{kadm.NewClient(kafka)})
}
