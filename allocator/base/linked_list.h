// SPDX-License-Identifier: Apache-2.0
// A list through links that its items have themselves, so that it needs no memory and cannot fail;
// the last item pushed is the first. An item is in one list at a time. Not thread-safe: whoever
// owns the list protects it.
#pragma once

namespace cistern::alloc {

template <typename T>
struct NextLink {
  static T*& next(T* item) { return item->next; }
};

// Links: static T*& next(T*).
template <typename T, typename Links = NextLink<T>>
class LinkedList {
 public:
  constexpr LinkedList() = default;
  // Takes over what is linked already.
  explicit LinkedList(T* first) : first_(first) {}

  bool empty() const { return first_ == nullptr; }
  T* first() const { return first_; }

  void push(T* item) {
    Links::next(item) = first_;
    first_ = item;
  }

  // Takes the first item out; nullptr if there is none.
  T* pop() {
    T* item = first_;
    if (item != nullptr) first_ = Links::next(item);
    return item;
  }

  // `item` is in the list.
  void remove(T* item) {
    T** link = &first_;
    while (*link != item) link = &Links::next(*link);
    *link = Links::next(item);
  }

  // No visit may change the list.
  template <typename Visitor>
  void for_each(Visitor visit) const {
    for (T* item = first_; item != nullptr; item = Links::next(item)) visit(item);
  }

 private:
  T* first_ = nullptr;
};

}  // namespace cistern::alloc
