/* A list through its members: a circle with the head in it. */
#ifndef WEFT_BASE_LIST_H
#define WEFT_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "compiler.h"

struct list {
    struct list *next, *prev;
};

#define list_of(node, type, member) container_of(node, type, member)

/* Over the nodes of a list, or over the objects of type `*item` that hold them. The loop may
 * remove no node. */
#define list_for_each(node, head) \
    for (struct list *node = (head)->next; node != (head); node = node->next)
#define list_for_each_entry(item, head, member)                                            \
    for (item = list_of((head)->next, __typeof__(*item), member); &item->member != (head); \
         item = list_of(item->member.next, __typeof__(*item), member))
/* The same where the loop may remove the node it is at, and no other. `after` is a name for the
 * next one. */
#define list_for_each_safe(node, after, head)                                   \
    for (struct list *node = (head)->next, *after = node->next; node != (head); \
         node = after, after = node->next)

static inline void list_init(struct list *head) {
    head->next = head->prev = head;
}
static inline bool list_empty(const struct list *head) {
    return head->next == head;
}
static inline void list_append(struct list *head, struct list *node) {
    struct list *last = head->prev;
    __asm__("" : "+r"(last)); /* two words: making one of them, to write it at once, takes longer */
    node->prev = last;
    node->next = head;
    last->next = node;
    head->prev = node;
}
static inline void list_prepend(struct list *head, struct list *node) {
    list_append(head->next, node);
}
/* Leaves the node a list of its own, so that removing it again does nothing. */
static inline void list_remove(struct list *node) {
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}
static inline struct list *list_pop(struct list *head) {
    struct list *node = head->next;
    if (node == head) return NULL;
    list_remove(node);
    return node;
}

#endif
